package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// billOfMaterials lists what is in the packages, as CycloneDX: the modules of both programs, the C
// libraries, and the packages of Debian that the image has files of.
func (r *release) billOfMaterials(ctx context.Context, b *build) error {
	bom, err := r.modules(ctx, b, b.binary)
	if err != nil {
		return err
	}
	bom.Metadata.Timestamp = r.time.Format(time.RFC3339)
	bom.Metadata.Component.Version = r.version
	committer, err := r.modules(ctx, b, b.committer)
	if err != nil {
		return err
	}
	libraries, err := r.libraries(ctx, b)
	if err != nil {
		return err
	}
	all := slices.Concat(*bom.Components, *committer.Components, libraries)
	slices.SortStableFunc(all, func(a, b cyclonedx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	all = slices.CompactFunc(all, func(a, b cyclonedx.Component) bool { return a.BOMRef == b.BOMRef })
	bom.Components, bom.Dependencies = &all, nil // those of one program
	sum := sha256.Sum256([]byte(r.commit + r.version + b.arch))
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceOID, sum[:]).URN()
	out, err := r.create("perigee-" + r.version + "-linux-" + b.arch + ".cdx.json")
	if err != nil {
		return err
	}
	defer out.Close()
	return errors.Join(cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom), out.Close())
}

// modules lists the modules of a program.
func (r *release) modules(ctx context.Context, b *build, program string) (*cyclonedx.BOM, error) {
	raw := filepath.Join(r.work, "bom-"+b.arch+".json")
	tool := filepath.Join(r.root, ".build", "dist-tools", "cyclonedx-gomod")
	if err := run(ctx, b.source, b.environment(), tool, "bin", "-json", "-std", "-noserial", "-output", raw, program); err != nil {
		return nil, err
	}
	file, err := os.Open(raw)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	bom := new(cyclonedx.BOM)
	if err := cyclonedx.NewBOMDecoder(file, cyclonedx.BOMFileFormatJSON).Decode(bom); err != nil {
		return nil, err
	}
	if bom.Metadata == nil || bom.Metadata.Component == nil || bom.Components == nil {
		return nil, errors.New("cyclonedx-gomod lists no components")
	}
	return bom, nil
}

var libraryLine = regexp.MustCompile(`(?m)^(LuaJIT|DuckDB|LMDB) v?(\S+)$`)

// libraries lists what is linked besides modules, and what is in the image.
func (r *release) libraries(ctx context.Context, b *build) ([]cyclonedx.Component, error) {
	native := filepath.Join(r.work, "perigee-"+runtime.GOARCH) // of the same commit
	text, err := output(ctx, "", native, "version")
	if err != nil {
		return nil, err
	}
	var all []cyclonedx.Component
	for _, m := range libraryLine.FindAllStringSubmatch(text, -1) {
		url := "pkg:generic/" + strings.ToLower(m[1]) + "@" + m[2]
		all = append(all, cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: m[1], Version: m[2], PackageURL: url})
	}
	if len(all) != 3 {
		return nil, fmt.Errorf("perigee version names %d of 3 libraries:\n%s", len(all), text)
	}
	compiler, err := output(ctx, "", b.compiler, "-dumpfullversion")
	if err != nil {
		return nil, err
	}
	url := "pkg:generic/libstdc++@" + compiler
	all = append(all, cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: "libstdc++", Version: compiler, PackageURL: url})
	packages, err := r.fetchBase(ctx, b.arch)
	if err != nil {
		return nil, err
	}
	for _, name := range packages {
		field, err := output(ctx, "", "dpkg-deb", "--show", "--showformat=${Package} ${Version} ${Architecture}", name)
		if err != nil {
			return nil, err
		}
		parts := strings.Fields(field)
		url := "pkg:deb/debian/" + parts[0] + "@" + strings.ReplaceAll(parts[1], "+", "%2B") + "?arch=" + parts[2]
		all = append(all, cyclonedx.Component{
			BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: parts[0], Version: parts[1], PackageURL: url, Description: "in the container image only",
		})
	}
	return all, nil
}
