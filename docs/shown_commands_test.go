// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/cli"
)

// shownCommand is a command that a page shows, and what it says that the command prints.
type shownCommand struct {
	page    string
	line    int
	command string
	want    string
}

// runnable are commands that need neither a cluster nor a file: all that they read is the
// catalogue. With "; echo $?" the exit code is printed, too.
var runnable = regexp.MustCompile(`^\$ (?:bin/)?nvtopo ([a-z][^|;]* --machine [^|;]*?)(; echo \$\?)?$`)

// TestPageOutputs: pages show what is printed. It runs the commands of all pages that name a
// machine of the catalogue.
func TestPageOutputs(t *testing.T) {
	found := map[string]int{}
	_, err := eachPage(repository(), func(name string, lines []line) []string {
		for _, shown := range commandsOf(name, lines) {
			found[name]++
			got := printed(t, shown.command)
			if diff := cmp.Diff(shown.want, got); diff != "" {
				t.Errorf("%s:%d: nvtopo %s prints something else (-page,+printed):\n%s", name, shown.line, shown.command, diff)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"docs/quickstart.md", "docs/cli.md", "docs/howto/single-numa-training.md", "docs/howto/five-gpus.md", "docs/howto/v100-pairs.md", "docs/howto/inference-pinning.md"} {
		if found[page] == 0 {
			t.Errorf("%s: no command was found", page)
		}
	}
}

// TestShownCommands: shown commands are found.
func TestShownCommands(t *testing.T) {
	page := "# A\n\nFor nobody.\n\n```\n$ nvtopo pick -n 1 --machine m\none\n\ntwo\n\n$ kubectl get pods\nthree\n$ nvtopo pick -n 9 --machine m; echo $?\nnvtopo: no\n1\n```\n\n" +
		"```\n$ nvtopo pick -n 2 --machine m\n```\n\n$ nvtopo pick -n 3 --machine m\n"
	want := []shownCommand{
		{"a.md", 6, "pick -n 1 --machine m", "one\n\ntwo\n"},
		{"a.md", 13, "pick -n 9 --machine m; echo $?", "nvtopo: no\n1\n"},
		{"a.md", 19, "pick -n 2 --machine m", ""},
	}
	if diff := cmp.Diff(want, commandsOf("a.md", parse(page)), cmp.AllowUnexported(shownCommand{})); diff != "" {
		t.Errorf("(-want,+got)\n%s", diff)
	}
}

// commandsOf are the runnable commands within fences. What a command prints ends at the next
// prompt or at the fence, without the blank lines before.
func commandsOf(page string, lines []line) []shownCommand {
	var all []shownCommand
	var output *shownCommand
	end := func() {
		if output != nil {
			output.want = strings.TrimRight(output.want, "\n")
			if output.want != "" {
				output.want += "\n"
			}
			all = append(all, *output)
		}
		output = nil
	}
	for _, l := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(l.text), "```")
		command := runnable.FindStringSubmatch(l.text)
		switch {
		case l.kind == code && !fence && command != nil:
			end()
			output = &shownCommand{page: page, line: l.number, command: command[1] + command[2]}
		case fence, strings.HasPrefix(l.text, "$ "):
			end()
		case output != nil:
			output.want += l.text + "\n"
		}
	}
	end()
	return all
}

// printed is what a shell shows of the command, as cmd/nvtopo writes errors.
func printed(t *testing.T, command string) string {
	t.Helper()
	args, code := strings.CutSuffix(command, "; echo $?")
	var out bytes.Buffer
	c := cli.New("nvtopo")
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(strings.Fields(args))
	err := c.ExecuteContext(t.Context())
	if err != nil {
		fmt.Fprintf(&out, "nvtopo: %v\n", err)
	}
	if code {
		fmt.Fprintln(&out, cli.ExitCode(err))
	}
	return out.String()
}
