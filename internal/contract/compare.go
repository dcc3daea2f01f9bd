// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// Variable is the environment variable that makes tests write the files instead of comparing them, if its
// value is "write".
const Variable = "NVTOPO_CONTRACT"

// Folder is the folder of the files, in the repository.
const Folder = "test/contract/golden"

// Compare fails the test unless the file called name has the text got, and prints the lines that differ.
func Compare(tb testing.TB, name, got string) {
	tb.Helper()
	compare(tb, filepath.Join(testkit.Repository(), Folder), name, got, os.Getenv(Variable) == "write")
}

func compare(tb testing.TB, folder, name, got string, write bool) {
	tb.Helper()
	path := filepath.Join(folder, filepath.FromSlash(name))
	if strings.TrimSpace(got) == "" {
		tb.Errorf("%s/%s would be empty: what it is made of was not found", Folder, name)
		return
	}
	if write {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a committed file is for everybody
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil { //nolint:gosec // a committed file is for everybody
			tb.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		tb.Fatal(err)
	}
	if string(want) == got {
		return
	}
	changes := Changes(lines(string(want)), lines(got))
	tb.Errorf("What others see has changed: %s/%s is not what the source makes now (- committed, + now). "+
		"If that is meant, run `make contract`, commit the file, and say in CHANGELOG.md what changes for users:\n%s",
		Folder, name, strings.Join(changes, "\n"))
	if len(changes) == 0 {
		tb.Logf("only the end of the file differs: %s", cmp.Diff(string(want), got))
	}
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// Changes lists the lines that a text has lost, prefixed with "- ", and those that it has gained,
// prefixed with "+ ", in order. The nearest unchanged heading, a line that begins with "#", goes before
// them.
func Changes(before, after []string) []string {
	first := 0
	for first < min(len(before), len(after)) && before[first] == after[first] {
		first++
	}
	last := 0
	for last < min(len(before), len(after))-first && before[len(before)-1-last] == after[len(after)-1-last] {
		last++
	}
	a, b := before[first:len(before)-last], after[first:len(after)-last]
	heading := headingOf("", before[:first])
	common := commonLines(a, b)
	var out []string
	say := func(sign, line string) {
		if heading != "" {
			out = append(out, "  "+heading)
			heading = ""
		}
		out = append(out, sign+line)
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			heading = headingOf(heading, a[i:i+1])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			say("- ", a[i])
			i++
		default:
			say("+ ", b[j])
			j++
		}
	}
	return out
}

// commonLines returns at [i][j] the number of lines that a[i:] and b[j:] have in common, in order.
func commonLines(a, b []string) [][]int32 {
	common := make([][]int32, len(a)+1)
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	return common
}

// headingOf returns the last heading among lines, or else before, an earlier heading.
func headingOf(before string, lines []string) string {
	for _, l := range lines {
		if strings.HasPrefix(l, "#") {
			before = l
		}
	}
	return before
}
