package sdk_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fence returns the code of the README's only fence with a mark, such as "go sdk".
func fence(t *testing.T, mark string) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	must(t, err)
	found := regexp.MustCompile("(?s)```"+mark+"\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(found) != 1 {
		t.Fatalf("the README has %d fences marked %q", len(found), mark)
	}
	return string(found[0][1])
}

// program is the README's Go code as a program, which prints the item that it read.
const program = `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func main() {
	ctx := context.Background()
%s
	if err != nil {
		panic(err)
	}
	fmt.Println(string(item.Value))
}
`

// javaCode is the README's Java as a program, which prints what it found.
const javaCode = `import com.azure.cosmos.*;
import com.azure.cosmos.models.*;
import java.util.*;

public class Readme {
	public static void main(String[] args) {
%s
		System.out.println(folders);
		System.exit(0);
	}
}
`

// rustCode is the README's Rust as a program, which prints what it found.
const rustCode = `use azure_data_cosmos::{AccountReference, CosmosClient, FeedScope, RoutingStrategy};
use futures::TryStreamExt;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
%s
    println!("{:?}", long.try_collect::<Vec<_>>().await?);
    Ok(())
}
`

// TestREADME_SDKs runs what the README says of the SDKs, beside a server whose keys
// and certificate it made itself.
func TestREADME_SDKs(t *testing.T) {
	s := start(t, true, "MILLRACE_GATEWAY_KEYS_PRIMARY=", "MILLRACE_GATEWAY_KEYS_PRIMARY_READ_ONLY=")
	path, err := binary()
	must(t, err)
	bin := t.TempDir()
	must(t, os.Symlink(path, filepath.Join(bin, "millrace")))
	samples, err := filepath.Abs(filepath.Join("..", "..", "configs", "webstore"))
	must(t, err)
	here, err := os.Getwd()
	must(t, err)
	port := s.endpoint[strings.LastIndex(s.endpoint, ":")+1:]
	code := func(mark string) string {
		return strings.ReplaceAll(fence(t, mark), "localhost:8081", "localhost:"+port)
	}
	file := filepath.Join(t.TempDir(), "main.go")
	must(t, os.WriteFile(file, fmt.Appendf(nil, program, code("go sdk")), 0o644))
	// The directory is named shop here as there; each language runs in its module.
	run := func(command string) string {
		t.Helper()
		script := "cd " + filepath.Dir(s.dir) + "\n" + code("sh sdk") + "\n" + command
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "MILLRACE_SERVER="+s.nats, "MILLRACE_DIR="+s.dir)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", command, err, out, stderr.String())
		}
		return string(out)
	}
	run("cd " + s.dir + " && millrace apply -f " + samples)
	t.Run("Go", func(t *testing.T) {
		if out := run("cd " + here + " && go run " + file); !strings.Contains(out, `"name": "Tourer"`) && !strings.Contains(out, `"name":"Tourer"`) {
			t.Errorf("the Go code reads %s", out)
		}
	})
	t.Run("JavaScript", func(t *testing.T) {
		if err := packages(); err != nil {
			t.Skipf("@azure/cosmos cannot be had: %v", err)
		}
		module := filepath.Join("js", "node_modules", ".readme.mjs") // where git does not see it
		must(t, os.WriteFile(module, []byte(code("js sdk")+"console.log(JSON.stringify(resources));\n"), 0o644))
		t.Cleanup(func() { must(t, os.Remove(module)) })
		want := `[{"name":"Gravel","price":799},{"name":"Tourer","price":699}]`
		if out := strings.TrimSpace(run("cd " + filepath.Join(here, "js") + " && node node_modules/.readme.mjs")); out != want {
			t.Errorf("the JavaScript finds %s, want %s", out, want)
		}
	})
	t.Run("Python", func(t *testing.T) {
		python, err := interpreter()
		if err != nil {
			t.Skipf("azure-cosmos cannot be had: %v", err)
		}
		script := filepath.Join(t.TempDir(), "readme.py")
		must(t, os.WriteFile(script, []byte(code("python sdk")+"print(list(dear))\n"), 0o644))
		if out, want := strings.TrimSpace(run(python+" -W ignore "+script)), "[{'name': 'Cargo', 'price': 2499}]"; out != want {
			t.Errorf("the Python finds %s, want %s", out, want)
		}
	})
	t.Run("Java", func(t *testing.T) {
		path := pathOf(t, javaProgram)
		file := filepath.Join(t.TempDir(), "Readme.java")
		must(t, os.WriteFile(file, fmt.Appendf(nil, javaCode, code("java sdk")), 0o644))
		command := code("sh java") + "\njava -cp " + path + " " + file
		if out, want := strings.TrimSpace(run(command)), "[Folder]"; out != want {
			t.Errorf("the Java finds %s, want %s", out, want)
		}
	})
	t.Run("Rust", func(t *testing.T) {
		if out, want := strings.TrimSpace(run(rustOf(t, "readme", fmt.Sprintf(rustCode, code("rust sdk"))))), `["Tandem"]`; out != want {
			t.Errorf("the Rust finds %s, want %s", out, want)
		}
	})
}
