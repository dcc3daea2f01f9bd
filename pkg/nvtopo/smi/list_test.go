// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

const twoListed = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa)\nGPU 3: NVIDIA A100-SXM4-40GB (UUID: GPU-bb)\n"

func TestParseList(t *testing.T) {
	const a100 = "NVIDIA A100-SXM4-40GB"
	for name, tc := range map[string]struct {
		text string
		want []nvtopo.GPU
	}{
		"no GPU": {text: "No devices found.\n"},
		"two GPUs after a prompt": {
			text: "root@pod:/# nvidia-smi -L\n" + twoListed,
			want: []nvtopo.GPU{{Index: 0, Model: a100, UUID: "GPU-aa", NUMANode: -1}, {Index: 3, Model: a100, UUID: "GPU-bb", NUMANode: -1}},
		},
		"a partitioned GPU": {
			text: "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa)\n  MIG 1g.5gb      Device  0: (UUID: MIG-cc)\n  MIG 3g.20gb     Device  1: (UUID: MIG-dd)",
			want: []nvtopo.GPU{{
				Index: 0, Model: a100, UUID: "GPU-aa", NUMANode: -1, MIG: true,
				Slices: []nvtopo.Slice{{Profile: "1g.5gb", UUID: "MIG-cc"}, {Profile: "3g.20gb", UUID: "MIG-dd"}},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseList(strings.NewReader(tc.text))
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("error %v; GPUs (-want,+got)\n%s", err, diff)
			}
		})
	}
}

func TestParseListErrors(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"a line that was cut":  {twoListed + "GPU 4: NVIDIA A100", `line 3, column 1: want "GPU N: MODEL (UUID: …)"`},
		"a slice of no GPU":    {"  MIG 1g.5gb  Device  0: (UUID: MIG-cc)", "line 1, column 3: want"},
		"one GPU listed twice": {twoListed + twoListed, `line 3, column 1: "GPU-aa" is listed twice`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseList(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}

func FuzzParseList(f *testing.F) {
	f.Add(twoListed)
	f.Add("GPU 0: A (UUID: GPU-aa)\n  MIG 1g.5gb      Device  0: (UUID: MIG-cc)")
	f.Fuzz(func(t *testing.T, text string) {
		gpus, err := ParseList(strings.NewReader(text))
		if err != nil {
			checkPosition(t, text, err)
		}
		seen := map[string]bool{}
		for _, g := range gpus {
			if g.UUID == "" || seen[g.UUID] || g.MIG != (len(g.Slices) > 0) {
				t.Errorf("%q: GPU %+v", text, g)
			}
			seen[g.UUID] = true
		}
	})
}
