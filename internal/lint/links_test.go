package lint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// linkTarget is where a link or an image of a Markdown text leads.
var linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// brokenLinks lists the links within the tree below root that lead nowhere, as "file: target", and says how many were looked at.
func brokenLinks(root string) (broken []string, looked int, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "quick" && filepath.Base(filepath.Dir(path)) == "results"):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range linkTarget.FindAllStringSubmatch(string(text), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			looked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), target)); errors.Is(err, fs.ErrNotExist) {
				broken = append(broken, path+": "+m[1])
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	return broken, looked, err
}

// Results are replaced as a whole, and a text that shows one of them is forgotten then.
func TestEveryLinkOfATextLeadsSomewhere(t *testing.T) {
	broken, looked, err := brokenLinks("../..")
	if err != nil || looked < 50 {
		t.Fatalf("%d links looked at: %v", looked, err)
	}
	for _, b := range broken {
		t.Error(b)
	}
}

func TestABrokenLinkIsFound(t *testing.T) {
	dir := t.TempDir()
	text := "[a](there.md) ![b](gone.png) [c](gone.md#x) [d](#here) [e](https://example.org/gone)"
	if err := os.WriteFile(filepath.Join(dir, "there.md"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	broken, looked, err := brokenLinks(dir)
	file := filepath.Join(dir, "there.md")
	if want := file + ": gone.png, " + file + ": gone.md#x"; err != nil || looked != 3 || strings.Join(broken, ", ") != want {
		t.Errorf("%q of %d, %v; want %q", broken, looked, err, want)
	}
}
