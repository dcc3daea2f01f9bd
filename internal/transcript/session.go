// SPDX-License-Identifier: Apache-2.0

package transcript

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/cli"
)

// Variable is the environment variable that makes tests write the files instead of comparing them, if its
// value is "write".
const Variable = "NVTOPO_TRANSCRIPTS"

// Folder is the folder of the files, in the repository.
const Folder = "docs/transcripts"

// moment replaces times that differ from run to run; it has their width.
const moment = "2026-01-01T00:00:00Z"

var moments = regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// Session is a terminal session: commands and their output.
type Session struct {
	name   string
	access []string
	rules  []rule
	text   strings.Builder
}

// rule replaces text that matches a pattern.
type rule struct {
	pattern *regexp.Regexp
	shown   string
}

// New begins the session that docs/transcripts/NAME.txt shows. The flags in access connect to the test's
// cluster: every command gets them, and none is shown with them.
func New(name string, access ...string) *Session {
	return &Session{name: name, access: access}
}

// Hide replaces text that matches a pattern, or removes it, in the whole session. A replacement in a
// table has to be as wide as the text it replaces.
func (s *Session) Hide(pattern, shown string) {
	s.rules = append(s.rules, rule{regexp.MustCompile(pattern), shown})
}

// HideTimes replaces all times by the same one.
func (s *Session) HideTimes() { s.rules = append(s.rules, rule{moments, moment}) }

// Say writes a remark for the reader: lines that begin with "# ".
func (s *Session) Say(format string, args ...any) {
	s.gap()
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		s.text.WriteString("# " + strings.TrimSuffix(line, "\n") + "\n")
	}
}

// File shows a file, as cat prints it.
func (s *Session) File(name, text string) {
	s.gap()
	fmt.Fprintf(&s.text, "$ cat %s\n%s\n", name, strings.Trim(text, "\n"))
}

// Run runs nvtopo with some flags, and shows its output. After a command that fails, its exit code is
// shown.
func (s *Session) Run(tb testing.TB, args ...string) string {
	tb.Helper()
	return s.RunWith(tb, nil, args...)
}

// RunWith is Run with flags of this command that are not shown.
func (s *Session) RunWith(tb testing.TB, unseen []string, args ...string) string {
	tb.Helper()
	cmd := cli.New("nvtopo")
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(slices.Concat(args, unseen, s.access))
	err := cmd.ExecuteContext(tb.Context())
	if err != nil {
		fmt.Fprintf(&out, "nvtopo: %v\n", err) // as cmd/nvtopo does
	}
	s.gap()
	fmt.Fprintf(&s.text, "$ nvtopo %s\n", quoted(args))
	if printed := strings.TrimRight(out.String(), "\n"); printed != "" {
		s.text.WriteString(printed + "\n")
	}
	if err != nil {
		fmt.Fprintf(&s.text, "$ echo $?\n%d\n", cli.ExitCode(err))
	}
	return out.String()
}

// quoted returns a command line quoted for a shell.
func quoted(args []string) string {
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = arg
		if strings.ContainsAny(arg, " {}'\"$*") {
			out[i] = "'" + arg + "'"
		}
	}
	return strings.Join(out, " ")
}

// gap adds the empty line between two commands.
func (s *Session) gap() {
	if s.text.Len() > 0 {
		s.text.WriteByte('\n')
	}
}

// Text returns the session as it is shown.
func (s *Session) Text() string {
	text := s.text.String()
	for _, r := range s.rules {
		text = r.pattern.ReplaceAllString(text, r.shown)
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// Compare fails unless the file equals the session, or writes the file if Variable is set.
func (s *Session) Compare(tb testing.TB) {
	tb.Helper()
	got, path := s.Text(), filepath.Join(testkit.Repository(), Folder, s.name+".txt")
	if os.Getenv(Variable) == "write" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil { //nolint:gosec // a page is for everybody
			tb.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Errorf("%v: %s=write makes it", err, Variable)
		return
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		tb.Errorf("%s/%s.txt shows something else; %s=write writes what is seen (-file +seen):\n%s", Folder, s.name, Variable, diff)
	}
}
