// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
)

// linkedAndNot is a machine with two bridged pairs, one of them with a pod, and one whose GPUs are joined by PCIe only.
func linkedAndNot(t *testing.T) (file string) {
	t.Helper()
	c := viewtest.New()
	for _, n := range [][2]string{{"bridged", "a100-pcie-4-bridged"}, {"plain", "rtx4090-8"}} {
		if err := c.AddNode(n[0], n[1]); err != nil {
			t.Fatal(err)
		}
	}
	c.AddPod("p", "bridged", 1, 0)
	return savedCluster(t, c)
}

// TestMinLinkBesideUnknownGPUs: if a pod holds untracked GPUs, no set is certainly joined, and one GPU is
// available.
func TestMinLinkBesideUnknownGPUs(t *testing.T) {
	c := viewtest.New()
	if err := c.AddNode("n", "hgx-a100-4"); err != nil {
		t.Fatal(err)
	}
	c.AddPod("foreign", "n", 1)
	got := mustRun(t, "", "top", "--min-link", "NVLINK", "--from", savedCluster(t, c))
	const want = `NODE  GPUS    USED  FREE  LARGEST  RING 8  RING 4  RING 2  X8   X4   X2   X1   NOTE
n     ....+1  1     3     -        -       -       -       0/0  0/1  0/2  3/4
Total: 1 node, 4 GPUs, 1 used, 3 free, of which 0 have a link of NV1 or better to another free one
`
	if !strings.HasPrefix(got, want) {
		t.Errorf("(-want,+got):\n%s", cmp.Diff(want, got))
	}
}

// TestMinLinkCountsSets: --min-link counts sets of which all pairs have the link, on nodes that
// have it: not all sets of such nodes. fabric show has the same meaning.
func TestMinLinkCountsSets(t *testing.T) {
	from := linkedAndNot(t)
	tests := map[string]struct{ line, want string }{
		"top": {"top --min-link NVLINK", `NODE     GPUS  USED  FREE  LARGEST  RING 8  RING 4  RING 2  X8   X4   X2   X1   NOTE
bridged  #...  1     3     2 NV12   -       -       300     0/0  0/0  1/2  3/4
Total: 1 node, 4 GPUs, 1 used, 3 free, of which 2 have a link of NV1 or better to another free one

MODEL                  NODES  GPUS  USED  FREE  WHOLE  LARGEST
NVIDIA-A100-80GB-PCIe  1      4     1     3     0      2 NV12

SIZE  SLOTS  CAPACITY  CLASS  LINKED  CAPACITY  IDEAL  FRAGMENTED  MENDABLE
8     0      0         -      -       -         -      -           -
4     0      0         -      -       -         -      -           -
2     1      2         NV12   1       2         1      0%          -
1     3      4         -      -       -         -      -           -
`},
		"top without the flag": {"top", `NODE     GPUS      USED  FREE  LARGEST  RING 8  RING 4  RING 2  X8   X4   X2   X1   NOTE
bridged  #...      1     3     3 SYS    -       -       300     0/0  0/1  1/2  3/4
plain    ........  0     8     8 SYS    12      12      12      1/1  2/2  4/4  8/8
Total: 2 nodes, 12 GPUs, 1 used, 11 free, of which 2 have a direct link (NVLINK, XGMI or HCCS) to another free one
`},
		"defrag":                  {"defrag -n 4 --min-link NVLINK", "Groups of 4 by NV1 or better: 0 free, and so many free GPUs cannot be more\n"},
		"defrag without the flag": {"defrag -n 4", "Groups of 4 by any link: 2 free, and so many free GPUs cannot be more\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := mustRun(t, "", append(strings.Fields(tc.line), "--from", from)...)
			if len(tc.want) < len(got) {
				got = got[:len(tc.want)]
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
	t.Run("fabric show", func(t *testing.T) {
		args := showFiles(t, "show", "node,rack\nbridged,r0\nplain,r1\n", "node,free\nbridged,1 2 3\n", "")
		nodes := args[slices.Index(args, "--nodes")+1] // of one machine each
		if err := os.WriteFile(nodes, []byte("node,machine\nbridged,a100-pcie-4-bridged\nplain,rtx4090-8\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		const want = `DOMAIN         NODES  WHOLE  FREE  x8  x4  x2  x1
cluster        1      0      3/4   0   0   1   3
├─ r0          1      0      3/4   0   0   1   3
│  └─ bridged  1      0      3/4   0   0   1   3
└─ r1          0      0      0/0   0   0   0   0
`
		got := mustRun(t, "", append(args, "--min-link", "NVLINK", "--show-nodes")...)
		if !strings.HasPrefix(got, want) {
			t.Errorf("(-want,+got):\n%s", cmp.Diff(want, got))
		}
	})
}
