// SPDX-License-Identifier: Apache-2.0

package transcript

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSession checks the text of a session with remarks, files and commands.
func TestSession(t *testing.T) {
	s := New("none", "--machine", "dgx1-v100")
	s.HideTimes()
	s.Hide("/tmp/[a-z]+/", "")
	s.Say("Two remarks,\nmade at %s.", "2026-11-24T14:00:00Z")
	s.File("/tmp/abc/job.yaml", "\nkind: Job\n")
	if printed := s.Run(t, "pick", "-n", "1", "--free", "3"); !strings.HasPrefix(printed, "GPUs ") {
		t.Errorf("it printed %q", printed)
	}
	s.RunWith(t, []string{"--free", "0"}, "pick", "-n", "2", "--policy", "a b")
	want := `# Two remarks,
# made at 2026-01-01T00:00:00Z.

$ cat job.yaml
kind: Job

$ nvtopo pick -n 1 --free 3
GPUs        3
NUMA nodes  0
Residual    0.000 GB/s

$ nvtopo pick -n 2 --policy 'a b'
nvtopo: --policy: unknown topology policy "a b", want one of none, best-effort, restricted, single-numa-node
$ echo $?
2
`
	if diff := cmp.Diff(want, s.Text()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
