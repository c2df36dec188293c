package suite_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/engine/suite"
)

func BenchmarkThousandCases(b *testing.B) {
	var text strings.Builder
	text.WriteString("env: {PASSWORD: x}\ncases:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  - name: case %d\n    now: 2026-11-22T10:00:%02dZ\n    events: [{email: u%d@b.c, n: %d}]\n    rows: {db: [{email: u%d@b.c, domain: b.c, n: %d, seen: \"2026-11-22 10:00:%02dZ\"}]}\n", i, i%60, i, i, i, i, i%60)
	}
	folder := b.TempDir()
	for name, text := range map[string]string{"pipeline.yaml": pipelineText, "mail.lua": scriptText, "mail_test.yaml": text.String()} {
		if err := os.WriteFile(folder+"/"+name, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		report, err := suite.Run(b.Context(), folder+"/mail_test.yaml", settings())
		if err != nil || report.Failed() > 0 {
			b.Fatal(err, report.Failed())
		}
	}
}
