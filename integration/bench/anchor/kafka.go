//go:build linux

package anchor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
)

// KafkaJoin is Kafka Streams where it keeps the names of categories in products, as tables name it.
const KafkaJoin = "Kafka Streams, foreign-key join"

// KafkaMode tells how it was told to make writes durable.
const KafkaMode = "Kafka: one node, log.flush.interval.messages=1, so every append is synced before it is acknowledged; processing.guarantee=exactly_once_v2, commit.interval.ms=100, no cache of records; " +
	"a heap of 2 GB for broker, streams and client"

// KafkaProgram is the program of integration/bench/anchors/kafka, built.
type KafkaProgram struct{ classes string }

// fetchMax is how long Maven may fetch, some 115 MB at the first time.
const fetchMax = 4 * time.Minute

// BuildKafka has Maven fetch what the program needs, and compiles it into dir. Source is the directory of its pom.xml. The error is
// a *SkippedError where there is no Maven or no compiler of Java, or where the registry is not reached, or takes too long.
func BuildKafka(ctx context.Context, source, dir string) (*KafkaProgram, error) {
	skip := func(reason string) error { return &SkippedError{KafkaJoin, reason} }
	for _, program := range []string{"mvn", "javac", "java"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, skip(program + " is not installed; apt-get install maven default-jdk-headless")
		}
	}
	list, classes := filepath.Join(dir, "kafka.classpath"), filepath.Join(dir, "kafka.classes")
	fetching, cancel := context.WithTimeout(ctx, fetchMax)
	defer cancel()
	// By the plugin alone: the phases of a build need more of them.
	cmd := exec.CommandContext(fetching, "mvn", "-q", "-B", "-f", filepath.Join(source, "pom.xml"), "org.apache.maven.plugins:maven-dependency-plugin:build-classpath",
		"-Dmdep.includeScope=runtime", "-Dmdep.outputFile="+list)
	if out, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() == nil && fetching.Err() != nil {
			return nil, skip(fmt.Sprintf("Maven has not fetched it after %s", fetchMax))
		}
		if bytes.Contains(out, []byte("Could not transfer")) || bytes.Contains(out, []byte("offline mode")) {
			return nil, skip("Maven's registry is not reached")
		}
		return nil, fmt.Errorf("fetch Kafka: %w: %s", err, bytes.TrimSpace(out))
	}
	jars, err := os.ReadFile(list)
	if err != nil {
		return nil, fmt.Errorf("fetch Kafka: %w", err)
	}
	cmd = exec.CommandContext(ctx, "javac", "--release", "17", "-proc:none", "-Xlint:all", "-Werror", "-cp", string(jars), "-d", classes,
		filepath.Join(source, "src", "main", "java", "Join.java"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile Kafka's program: %w: %s", err, bytes.TrimSpace(out))
	}
	return &KafkaProgram{classes + ":" + string(jars)}, nil
}

// Kafka is a broker, Kafka Streams and their client, in a process that ends with this one. It is not safe for concurrent use.
type Kafka struct {
	set   *dataset.Set
	dir   string
	cmd   *exec.Cmd
	stdin io.Closer
	in    *bufio.Writer
	out   *bufio.Reader
	said  bytes.Buffer
	names map[string]string // of categories that were renamed, by id
}

// lineMax is more than any item or answer has.
const lineMax = 1 << 20

// Open starts it in dir, which exists and is empty, and returns when all products of the set were joined. It ends when ctx does.
func (p *KafkaProgram) Open(ctx context.Context, dir string, set *dataset.Set) (*Kafka, error) {
	k := &Kafka{set: set, dir: dir, names: map[string]string{}}
	k.cmd = exec.CommandContext(ctx, "java", "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", p.classes, "Join", dir)
	k.cmd.Stderr = &k.said
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := k.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start Kafka: %w", err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start Kafka: %w", err)
	}
	k.stdin, k.in, k.out = in, bufio.NewWriterSize(in, lineMax), bufio.NewReaderSize(out, lineMax)
	if err := k.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start Kafka: %w", err)
	}
	if err := k.load(); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *Kafka) load() error {
	for c := range k.set.Categories() {
		fmt.Fprintf(k.in, "c %s\n", k.set.Category(c, 0).JSON(0)) // the writer keeps its error until it is flushed
	}
	var line []byte
	for p := range k.set.Products() {
		line = append(k.set.AppendProduct(append(line[:0], "p "...), p), '\n')
		if _, err := k.in.Write(line); err != nil {
			return k.failed("load", err)
		}
	}
	return k.ask("load", k.set.Products(), "await %d\n", k.set.Products())
}

// Rename stores a category under another name, and returns when so many products with that name were committed, and how often
// the disk was flushed for it; negative where the disk does not count that.
func (k *Kafka) Rename(category dataset.Source, products int) (flushes float64, err error) {
	before, _, err := measure.FlushesOf(k.dir)
	if err != nil {
		return 0, err
	}
	if err := k.ask("rename", products, "rename %d %s\n", products, category.JSON(0)); err != nil {
		return 0, err
	}
	k.names[category.ID] = category.Name
	after, counted, err := measure.FlushesOf(k.dir)
	if err != nil || !counted {
		return -1, err
	}
	// The category, the copies and the end of their transaction are appended one after the other, each to another log.
	const appends = 3
	if after-before < appends {
		return 0, fmt.Errorf("it answered before what it answered was on disk: the disk was flushed %d times a rename", after-before)
	}
	return float64(after - before), nil
}

// Verify compares the copies of all products, byte by byte, with what they are to be after the renames.
func (k *Kafka) Verify() error {
	if err := k.tell("copies\n"); err != nil {
		return k.failed("read the copies", err)
	}
	last := map[string]uint64{}
	seed := maphash.MakeSeed()
	for printed := 0; ; printed++ {
		line, err := k.out.ReadSlice('\n')
		if err != nil {
			return k.failed("read the copies", err)
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		if n, ok := answered(line); ok {
			if n != printed {
				return fmt.Errorf("kafka: %d copies were printed, %d are said", printed, n)
			}
			return compare(k.set, k.names, func(id string, want []byte) bool { return last[id] == maphash.Bytes(seed, want) })
		}
		last[idOf(line)] = maphash.Bytes(seed, line)
	}
}

// idOf returns the id of a product's compact JSON, which stands first; "" if it does not.
func idOf(product []byte) string {
	rest, _ := bytes.CutPrefix(product, []byte(`{"id":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(id)
}

// compare says how many products are not as they are to be, under the names that categories have now.
func compare(set *dataset.Set, names map[string]string, is func(id string, want []byte) bool) error {
	wrong := 0
	var want []byte
	for p := range set.Products() {
		want = set.AppendProduct(want[:0], p)
		category := set.Category(set.CategoryOf(p), 0)
		if name, renamed := names[category.ID]; renamed {
			want = bytes.Replace(want, fmt.Appendf(nil, `"categoryName":%q`, category.Name), fmt.Appendf(nil, `"categoryName":%q`, name), 1)
		}
		if !is(set.ProductID(p), want) {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("kafka: %d of %d copies are not as they are to be", wrong, set.Products())
	}
	return nil
}

// answered reads what the program prints when it has done what it was asked for; ok is false for an item.
func answered(line []byte) (copies int, ok bool) {
	_, err := fmt.Sscanf(string(line), `{"copies":%d}`, &copies)
	return copies, err == nil
}

func (k *Kafka) tell(format string, args ...any) error {
	fmt.Fprintf(k.in, format, args...) // the writer keeps its error until it is flushed
	return k.in.Flush()
}

// ask gives a command and waits for its answer.
func (k *Kafka) ask(what string, copies int, format string, args ...any) error {
	if err := k.tell(format, args...); err != nil {
		return k.failed(what, err)
	}
	line, err := k.out.ReadBytes('\n')
	if err != nil {
		return k.failed(what, err)
	}
	if n, ok := answered(bytes.TrimSpace(line)); !ok || n != copies {
		return fmt.Errorf("kafka: %s: the answer is %q, want %d copies", what, line, copies)
	}
	return nil
}

// failed ends the process, which is of no use any more, and returns the error with what the process said.
func (k *Kafka) failed(what string, err error) error {
	_ = k.cmd.Process.Kill()
	_ = k.cmd.Wait()
	return fmt.Errorf("kafka: %s: %w: %s", what, err, bytes.TrimSpace(k.said.Bytes()))
}

// Close ends it. It may be called twice.
func (k *Kafka) Close() error {
	_ = k.stdin.Close()
	if k.cmd.ProcessState != nil {
		return nil // it has ended, and that was said
	}
	if err := k.cmd.Wait(); err != nil {
		return fmt.Errorf("kafka: %w: %s", err, bytes.TrimSpace(k.said.Bytes()))
	}
	return nil
}
