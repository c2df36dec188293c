package compare

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"

	"github.com/perigeedb/perigee/internal/terminal"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string

	page = template.Must(template.New("report").Parse(pageText))
)

// A pageGroup is a Group as the page shows it.
type pageGroup struct {
	Title, Count string
	Examples     []pageExample
}

type pageExample struct{ Event, Old, New string }

// WriteHTML writes the report as one page that needs no other file. Its policy forbids scripts and
// every connection, and all text of events is escaped.
func (r *Report) WriteHTML(w io.Writer) error {
	sum := sha256.Sum256([]byte(pageStyle))
	content := struct {
		StyleHash        string
		Style            template.CSS
		Summary, Omitted string
		Names            [2]string
		Figures          []comparedFigure
		Groups           []pageGroup
	}{
		StyleHash: "sha256-" + base64.StdEncoding.EncodeToString(sum[:]),
		Style:     template.CSS(pageStyle), Summary: r.summary(), Figures: figures(&r.Versions),
	}
	for i := range r.Versions {
		content.Names[i] = terminal.EscapeLine(r.Versions[i].Name)
	}
	if r.Omitted > 0 {
		content.Omitted = count(r.Omitted, "event")
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		shown := pageGroup{Title: terminal.EscapeLine(g.Title()), Count: count(g.Events, "event")}
		for _, e := range g.Examples {
			shown.Examples = append(shown.Examples, pageExample{thousands(e.Event), terminal.EscapeLine(e.Old), terminal.EscapeLine(e.New)})
		}
		content.Groups = append(content.Groups, shown)
	}
	return page.Execute(w, content)
}
