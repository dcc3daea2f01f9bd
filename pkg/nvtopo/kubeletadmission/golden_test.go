// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// goldenLine is a machine, a container and the hint that one kubelet settles on.
type goldenLine struct {
	Policy   string   `json:"policy"`
	Nodes    int      `json:"nodes"`
	NUMA     [][]int  `json:"numa"`
	Taken    [][]bool `json:"taken"`
	Want     []int    `json:"want"`
	Hint     []int    `json:"hint"`
	Best     bool     `json:"best"`
	Admitted bool     `json:"admitted"`
}

// forecast is the line's hint as this package predicts it.
func (l *goldenLine) forecast(tb testing.TB, deviceNodes bool) (h Hint, nodes []int, ok bool) {
	tb.Helper()
	policy, err := ParsePolicy(l.Policy)
	if err != nil {
		tb.Fatal(err)
	}
	machine := make([]Node, l.Nodes)
	for i := range machine {
		machine[i].ID = i
	}
	resources := make([]Resource, len(l.NUMA))
	c := Container{}
	for k, numa := range l.NUMA {
		for i, node := range numa {
			if node < 0 {
				numa[i] = nvtopo.UnknownNUMA
			}
		}
		resources[k] = Resource{All: nvtopo.FullMask(len(numa)), NUMA: numa}
		c.Devices[k] = l.Want[k]
	}
	m, err := New(&Config{Policy: policy, DeviceNodes: deviceNodes}, machine, resources)
	if err != nil {
		tb.Fatal(err)
	}
	s := m.NewState(nil, nil)
	for k, taken := range l.Taken {
		for i, busy := range taken {
			if !busy {
				s.Free[k] |= 1 << i
			}
		}
	}
	h, ok = m.HintOf(&s, NewPod([]Container{c}), 0)
	if h.Bound {
		nodes = m.Nodes(h.Nodes)
	}
	return h, nodes, ok
}

// TestHintsOfKubelets: hints for devices are those that each kubelet's own code settles on; from
// 1.36 on they differ. 1.34 makes them as 1.35 does. scripts/kubelet-golden.sh has them written.
func TestHintsOfKubelets(t *testing.T) {
	files, err := filepath.Glob("testdata/hints/1.*")
	if err != nil || len(files) < 3 {
		t.Fatalf("hints of kubelets: %v, %v; want those of 1.35, 1.36 and 1.37 at least", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			minor, err := strconv.Atoi(strings.Split(filepath.Base(file), ".")[1])
			if err != nil {
				t.Fatal(err)
			}
			deviceNodes := minor >= 36
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines, others := bytes.Split(bytes.TrimSpace(data), []byte("\n")), 0
			for i, text := range lines {
				var l goldenLine
				if err := json.Unmarshal(text, &l); err != nil {
					t.Fatalf("line %d: %v", i+1, err)
				}
				h, nodes, ok := l.forecast(t, deviceNodes)
				if ok != l.Admitted {
					t.Errorf("line %d: admitted %t, want %t: %s", i+1, ok, l.Admitted, text)
				}
				if !ok || !l.Admitted {
					continue // kubelet looks at no hint of a container that it refuses
				}
				if diff := cmp.Diff(l.Hint, nodes); diff != "" || h.Preferred != l.Best {
					t.Errorf("line %d: preferred %t, want %t, nodes (-want +got):\n%s%s", i+1, h.Preferred, l.Best, diff, text)
				}
				if _, other, _ := l.forecast(t, !deviceNodes); !slices.Equal(other, nodes) {
					others++
				}
			}
			if others == 0 {
				t.Errorf("all %d hints are as kubelets before and after 1.36 make them: the machines tell nothing", len(lines))
			}
		})
	}
}
