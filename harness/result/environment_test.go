package result

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAnExperimentDoesNotMakeTheNextOneDirty: what a run writes into the repository is not its code.
func TestAnExperimentDoesNotMakeTheNextOneDirty(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@t.example"}, args...)...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	for _, name := range []string{"PAPER.md", "results/index.html", "sub/code.go"} {
		write(name, "before")
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "x")
	t.Chdir(filepath.Join(dir, "sub"))
	if c := commit(t.Context()); c != "unknown" {
		t.Errorf("in another project's tree it is %q", c)
	}
	write("go.mod", "module github.com/tidemark-log/tidemark\n")
	git("add", ".")
	git("commit", "-q", "-m", "ours")
	write("PAPER.md", "after")
	write("results/index.html", "after")
	if c := commit(t.Context()); len(c) != 12 {
		t.Errorf("results make it %q", c)
	}
	write("sub/code.go", "after")
	if c := commit(t.Context()); !strings.HasSuffix(c, "-dirty") {
		t.Errorf("changed code leaves it %q", c)
	}
}
