// Command release builds what a release consists of: for each platform an archive with the
// binary, and its bill of materials; and the checksums of them all.
//
//	millrace_v1.2.3_linux_amd64.tar.gz     millrace, README.md, CHANGELOG.md, LICENSE, LICENSES.txt
//	millrace_v1.2.3_linux_amd64.cdx.json   CycloneDX: the modules that the binary says it is made of
//	SHA256SUMS                             for sha256sum --check
//
// The same commit and the same Go make the same bytes, in any directory and on any machine:
// nothing of either gets into a file, and its times are that of the commit, or of
// SOURCE_DATE_EPOCH where there is no git.
//
// It is a module of its own, so that what it needs is no part of what it builds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// platformsAll are those that a release is built for. Windows is not one of them: stores ask
// the file system how much room there is (statfs) and processes are told to stop by SIGTERM.
const platformsAll = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := release{}
	flag.StringVar(&r.version, "version", "", "version of the release, such as v1.2.3")
	flag.StringVar(&r.root, "root", "../..", "directory of the sources")
	flag.StringVar(&r.out, "out", "", "directory for the files (default ROOT/bin/release/VERSION)")
	platforms := flag.String("platforms", platformsAll, "what to build for")
	flag.Parse()
	if err := r.run(ctx, strings.Split(*platforms, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one version that is being made.
type release struct {
	version   string
	root, out string
	time      time.Time // of everything in it
}

// versions are those that go install understands too.
var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// run makes the release for some platforms.
func (r *release) run(ctx context.Context, platforms []string) error {
	if !versions.MatchString(r.version) {
		return fmt.Errorf("version %q: one such as v1.2.3 or v1.2.3-rc.1 is expected", r.version)
	}
	root, err := filepath.Abs(r.root)
	if err != nil {
		return err
	}
	r.root = root
	if r.out == "" {
		r.out = filepath.Join(r.root, "bin", "release", r.version)
	}
	if r.time, err = sourceTime(ctx, r.root); err != nil {
		return err
	}
	// What an earlier run left must not get among the checksums.
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	var made []string
	for _, platform := range platforms {
		files, err := r.build(ctx, platform)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		made = append(made, files...)
	}
	return writeSums(r.out, made)
}

// sourceTime is when the sources were made.
func sourceTime(ctx context.Context, root string) (time.Time, error) {
	text, set := os.LookupEnv("SOURCE_DATE_EPOCH")
	if !set {
		out, err := exec.CommandContext(ctx, "git", "-C", root, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("when the sources were made is not known: %w; set SOURCE_DATE_EPOCH where there is no git", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w; seconds since 1970 are expected", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// build makes the files of one platform and returns their names.
func (r *release) build(ctx context.Context, platform string) ([]string, error) {
	system, machine, ok := strings.Cut(platform, "/")
	if !ok {
		return nil, errors.New("a platform such as linux/amd64 is expected")
	}
	scratch, err := os.MkdirTemp("", "millrace-release-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	binary := filepath.Join(scratch, "millrace")
	// Git's stamp is left out: it tells a clone with tags from one without, and from an
	// archive of the same commit, and the bytes would tell them apart too.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+r.version, "-o", binary, "./cmd/millrace")
	cmd.Dir = r.root
	// What the environment of this machine could change.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+machine, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go build: %w", err)
	}
	of, err := readBinary(binary)
	if err != nil {
		return nil, err
	}
	notices, err := r.licenses(ctx, of)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("millrace_%s_%s_%s", r.version, system, machine)
	bill := name + ".cdx.json"
	if err := r.writeBill(filepath.Join(r.out, bill), platform, of); err != nil {
		return nil, err
	}
	entries := []entry{{name: "millrace", path: binary, mode: 0o755}, {name: "LICENSES.txt", text: notices, mode: 0o644}}
	for _, file := range []string{"README.md", "CHANGELOG.md", "LICENSE"} {
		entries = append(entries, entry{name: file, path: filepath.Join(r.root, file), mode: 0o644})
	}
	archive := name + ".tar.gz"
	if err := r.writeArchive(filepath.Join(r.out, archive), name, entries); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stdout, "%s: %.1f MB, of %d modules\n", archive, float64(of.size)/1e6, len(of.info.Deps))
	return []string{archive, bill}, nil
}
