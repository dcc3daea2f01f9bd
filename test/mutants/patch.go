// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Mutant is one wrong edit.
type Mutant struct {
	Name  string // of its file, without .patch
	What  string // the consequence, in one sentence
	Text  string // of its file
	Files []File // that it edits
}

// File is a mutant's edit of one file.
type File struct {
	Path  string // from the root of the repository
	Hunks []Hunk
}

// Hunk is one edited place of a file: its lines before and after the edit.
type Hunk struct {
	Line          int // first line when the patch was made, from 1
	Before, After []string
}

var hunkHead = regexp.MustCompile(`^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@`)

// Load reads all patches of a folder, in the order of their names.
func Load(dir string) ([]Mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	out := make([]Mutant, 0, len(paths))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m, err := Parse(strings.TrimSuffix(filepath.Base(path), ".patch"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, m)
	}
	return out, nil
}

// Parse reads a unified diff of files that exist before and after, made with -p1, below its sentence.
func Parse(name, text string) (Mutant, error) {
	m := Mutant{Name: name, Text: text}
	var what []string
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		err := m.parseLine(line, &what)
		if err != nil {
			return m, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	var ok bool
	switch m.What, ok = strings.CutPrefix(strings.Join(what, " "), "what: "); {
	case !ok || !strings.HasSuffix(m.What, "."):
		return m, errors.New(`it does not begin with "# what: " and a sentence`)
	case len(m.Files) == 0:
		return m, errors.New("it edits nothing")
	}
	return m, nil
}

func (m *Mutant) parseLine(line string, what *[]string) error {
	if comment, ok := strings.CutPrefix(line, "#"); ok && len(m.Files) == 0 {
		*what = append(*what, strings.TrimSpace(comment))
		return nil
	}
	if path, ok := strings.CutPrefix(line, "--- a/"); ok {
		m.Files = append(m.Files, File{Path: path})
		return nil
	}
	if len(m.Files) == 0 {
		return errors.New("no file is named")
	}
	f := &m.Files[len(m.Files)-1]
	if path, ok := strings.CutPrefix(line, "+++ b/"); ok {
		if path != f.Path {
			return fmt.Errorf("%s becomes %s", f.Path, path)
		}
		return nil
	}
	if at := hunkHead.FindStringSubmatch(line); at != nil {
		n, err := strconv.Atoi(at[1])
		f.Hunks = append(f.Hunks, Hunk{Line: n})
		return err
	}
	if len(f.Hunks) == 0 || line == "" {
		return fmt.Errorf("%q is not of a unified diff", line)
	}
	h := &f.Hunks[len(f.Hunks)-1]
	switch line[0] {
	case ' ':
		h.Before, h.After = append(h.Before, line[1:]), append(h.After, line[1:])
	case '-':
		h.Before = append(h.Before, line[1:])
	case '+':
		h.After = append(h.After, line[1:])
	default:
		return fmt.Errorf("%q is not of a unified diff", line)
	}
	return nil
}

// Apply returns the edited files, by path from the root of the repository. Lines may have been added or
// removed above a hunk.
func (m *Mutant) Apply(root string) (map[string]string, error) {
	out := map[string]string{}
	for _, f := range m.Files {
		text, err := os.ReadFile(filepath.Join(root, f.Path))
		if err != nil {
			return nil, err
		}
		lines, moved := strings.Split(string(text), "\n"), 0
		for _, h := range f.Hunks {
			at, err := find(lines, h.Before, h.Line-1+moved)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", f.Path, h.Line, err)
			}
			lines = slices.Replace(lines, at, at+len(h.Before), h.After...)
			moved += len(h.After) - len(h.Before)
		}
		changed := strings.Join(lines, "\n")
		if changed == string(text) {
			return nil, fmt.Errorf("%s is not changed", f.Path)
		}
		out[f.Path] = changed
	}
	return out, nil
}

// find returns the place of some lines: the expected one, or else the only other one.
func find(lines, some []string, expected int) (int, error) {
	var at []int
	for i := 0; i+len(some) <= len(lines); i++ {
		if slices.Equal(lines[i:i+len(some)], some) {
			at = append(at, i)
		}
	}
	switch {
	case len(at) == 0:
		return 0, errors.New("these lines are nowhere in the file")
	case slices.Contains(at, expected):
		return expected, nil
	case len(at) > 1:
		return 0, fmt.Errorf("these lines are at %d places in the file", len(at))
	}
	return at[0], nil
}
