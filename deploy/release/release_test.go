package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// copied copies the sources to another directory, without what is not theirs.
func copied(t *testing.T) string {
	t.Helper()
	from, to := filepath.Join("..", ".."), filepath.Join(t.TempDir(), "sources")
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch name {
		case ".git", "bin", "millrace-data", filepath.Join("deploy", "secrets"):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil // the .git of a work tree is a file
		}
		if e.IsDir() {
			if e.Name() == "node_modules" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		if !e.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// TestRelease_IsWholeAndTheSameAnywhere builds a release for this platform, in this
// directory and in another. All bytes are equal, the sums are right, the binary runs
// and tells its version, and its bill names the modules that it was linked with.
func TestRelease_IsWholeAndTheSameAnywhere(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if !strings.Contains(platformsAll, platform) {
		t.Skipf("no release is built for %s", platform)
	}
	first := release{version: "v0.98.7-test.1", root: "../..", out: t.TempDir()}
	if err := first.run(t.Context(), []string{platform}); err != nil {
		t.Fatal(err)
	}
	// What the environment says of builds changes nothing.
	t.Setenv("GOFLAGS", "-ldflags=-X=main.version=wrong")
	t.Setenv("GOAMD64", "v3")
	second := release{version: first.version, root: copied(t), out: t.TempDir()}
	if err := second.run(t.Context(), []string{platform}); err != nil {
		t.Fatal(err)
	}
	name := "millrace_v0.98.7-test.1_" + runtime.GOOS + "_" + runtime.GOARCH
	for _, file := range []string{name + ".tar.gz", name + ".cdx.json", "SHA256SUMS"} {
		a, errA := os.ReadFile(filepath.Join(first.out, file))
		b, errB := os.ReadFile(filepath.Join(second.out, file))
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs between two directories", file)
		}
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = first.out
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != 2 {
		t.Errorf("sha256sum --check: %v\n%s", err, out)
	}
	unpacked := unpack(t, filepath.Join(first.out, name+".tar.gz"))
	for _, file := range []string{"README.md", "CHANGELOG.md", "LICENSE"} {
		want, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(unpacked[name+"/"+file], want) {
			t.Errorf("%s of the archive is not that of the sources", file)
		}
	}
	binary := filepath.Join(t.TempDir(), "millrace")
	if err := os.WriteFile(binary, unpacked[name+"/millrace"], 0o755); err != nil {
		t.Fatal(err)
	}
	told, err := exec.Command(binary, "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(told), "millrace v0.98.7-test.1 (go") {
		t.Errorf("version: %v\n%s", err, told)
	}
	holdBill(t, filepath.Join(first.out, name+".cdx.json"), binary, string(unpacked[name+"/LICENSES.txt"]))
}

// unpack returns the files of an archive, and fails for one that tells of who made it.
func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	files, in := map[string][]byte{}, tar.NewReader(unzipped)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Uname != "" || !header.ModTime.Equal(time.Unix(1700000000, 0)) {
			t.Errorf("%s is of user %d %q, %s", header.Name, header.Uid, header.Uname, header.ModTime)
		}
		if want := map[bool]int64{true: 0o755, false: 0o644}[strings.HasSuffix(header.Name, "/millrace")]; header.Mode != want {
			t.Errorf("%s has mode %o, want %o", header.Name, header.Mode, want)
		}
		if files[header.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}

// holdBill compares a bill of materials and the licenses with what a binary says of itself.
func holdBill(t *testing.T, path, binary, licenses string) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bill := new(cdx.BOM)
	if err := cdx.NewBOMDecoder(bytes.NewReader(file), cdx.BOMFileFormatJSON).Decode(bill); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Deps) < 50 || len(*bill.Components) != len(info.Deps)+1 {
		t.Errorf("the bill has %d components, the binary %d modules and Go's library", len(*bill.Components), len(info.Deps))
	}
	named := map[string]string{}
	for _, c := range *bill.Components {
		named[c.Name] = c.Version
	}
	if "go"+named["stdlib"] != runtime.Version() {
		t.Errorf("the bill says Go %s, this is %s", named["stdlib"], runtime.Version())
	}
	for _, dep := range info.Deps {
		if named[dep.Path] != dep.Version {
			t.Errorf("the bill names %s %q, the binary %s", dep.Path, named[dep.Path], dep.Version)
		}
		if !strings.Contains(licenses, "\n=== "+dep.Path+", ") {
			t.Errorf("LICENSES.txt has no license of %s", dep.Path)
		}
	}
	if of := bill.Metadata.Component; of.Version != "v0.98.7-test.1" || of.Name != "github.com/millrace/millrace" || len(*of.Hashes) != 1 {
		t.Errorf("the bill is of %s %s", of.Name, of.Version)
	}
}

// TestRelease_RefusesWhatIsNoVersion asks for versions that go install would not find.
func TestRelease_RefusesWhatIsNoVersion(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	for _, version := range []string{"", "1.2.3", "v1.2", "devel", "v1.2.3/..", "v1.2.3 -X"} {
		r := release{version: version, root: "../..", out: t.TempDir()}
		if err := r.run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "v1.2.3 or") {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

// TestRelease_GoInstallTellsItsVersion installs the sources as go install does, at a version
// that a proxy of this test has.
func TestRelease_GoInstallTellsItsVersion(t *testing.T) {
	const path, version = "github.com/millrace/millrace", "v0.98.7-test.2"
	sources, proxy := copied(t), t.TempDir()
	dir := filepath.Join(proxy, path, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	packed, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	if err := zip.CreateFromDir(packed, module.Version{Path: path, Version: version}, sources); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(sources, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"list": version + "\n", version + ".mod": string(mod), version + ".info": `{"Version": "` + version + `", "Time": "2026-01-01T00:00:00Z"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	install := exec.Command("go", "install", "-trimpath", "-modcacherw", path+"/cmd/millrace@"+version)
	install.Dir = bin
	install.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=", "CGO_ENABLED=0", "GOWORK=off",
		// Nobody else knows the version, and the other modules were checked when they came.
		"GOSUMDB=off",
		// A cache of its own: what is tried here must not stay in that of this machine, which
		// has the other modules.
		"GOMODCACHE="+t.TempDir(), "GOPROXY=file://"+proxy+",file://"+filepath.Join(strings.TrimSpace(string(cache)), "cache", "download"))
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("go install: %v\n%s", err, out)
	}
	told, err := exec.Command(filepath.Join(bin, "millrace"), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(told), "millrace "+version+" (go") {
		t.Errorf("version: %v\n%s", err, told)
	}
}
