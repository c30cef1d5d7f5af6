package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// binary is what was built, and what it says of itself.
type binary struct {
	info *buildinfo.BuildInfo
	sum  []byte // SHA-256
	size int64
}

func readBinary(path string) (*binary, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read of what the binary is made: %w", err)
	}
	sum, err := sumOf(path)
	if err != nil {
		return nil, err
	}
	file, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &binary{info: info, sum: sum, size: file.Size()}, nil
}

// writeBill writes the bill of materials of a binary: its modules, as the linker recorded
// them, and Go's own library. Modules that go.mod names and nothing uses are not in it.
func (r *release) writeBill(path, platform string, of *binary) error {
	bill := cdx.NewBOM()
	// As unique as the binary and the same for the same one.
	bill.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-8%s-8%s-%x", of.sum[:4], of.sum[4:6],
		hex.EncodeToString(of.sum[6:8])[1:], hex.EncodeToString(of.sum[8:10])[1:], of.sum[10:16])
	self := component(of.info.Main.Path, r.version)
	self.Type = cdx.ComponentTypeApplication
	self.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(of.sum)}}
	self.Properties = &[]cdx.Property{{Name: "millrace:platform", Value: platform}, {Name: "millrace:go", Value: of.info.GoVersion}}
	bill.Metadata = &cdx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &self}
	components := []cdx.Component{component("stdlib", strings.TrimPrefix(of.info.GoVersion, "go"))}
	for _, dep := range of.info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		c := component(dep.Path, dep.Version)
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: dep.Sum}}
		components = append(components, c)
	}
	refs := make([]string, len(components))
	for i := range components {
		refs[i] = components[i].BOMRef
	}
	bill.Components = &components
	bill.Dependencies = &[]cdx.Dependency{{Ref: self.BOMRef, Dependencies: &refs}}
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bill); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}

// component is a module at a version.
func component(module, version string) cdx.Component {
	// A version such as v25.2.10+incompatible: a plus means a space in some URLs.
	url := "pkg:golang/" + module + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: module, Version: version, PackageURL: url}
}
