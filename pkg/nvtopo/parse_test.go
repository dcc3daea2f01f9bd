// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"testing"
)

func TestParsePolicy(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Policy{
		"none": PolicyNone, "best-effort": PolicyBestEffort, "restricted": PolicyRestricted,
		"single-numa-node": PolicySingleNUMANode, "single-numa": PolicySingleNUMANode,
	} {
		if got, err := ParsePolicy(in); err != nil || got != want {
			t.Errorf("ParsePolicy(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "Restricted", "single"} {
		if got, err := ParsePolicy(in); err == nil {
			t.Errorf("ParsePolicy(%q) = %v, want an error", in, got)
		}
	}
	if got := PolicySingleNUMANode.String(); got != "single-numa-node" {
		t.Errorf("String() = %q", got)
	}
}

// FuzzParseClass checks that a parsed class prints as itself and that order is preserved.
func FuzzParseClass(f *testing.F) {
	for _, s := range []string{"NV12", "nv1", "NVLINK", "PIX", "SOC", "XGMI4", "HCCS", "NV0", "NV+1", "NV99", "", " SYS "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseClass(s)
		if err != nil {
			if c != (Class{}) {
				t.Fatalf("ParseClass(%q) = %v with error %v", s, c, err)
			}
			return
		}
		again, err := ParseClass(c.String())
		if err != nil || again != c {
			t.Fatalf("ParseClass(%q) = %v, which reads back as %v, %v", s, c, again, err)
		}
		if c.IsFabric() == (c.PCIe != PCIeUnknown) || c.IsFabric() != (c.Lanes > 0) {
			t.Fatalf("ParseClass(%q) = %+v is neither fabric nor PCIe", s, c)
		}
	})
}

// FuzzParseCPUList checks that a parsed list is sorted, without repeats, and prints as a list that parses
// to an equal one.
func FuzzParseCPUList(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8", "3,1,2", "0-0", "1-0", "8191", "8192", "0-", "-1", "a", "0,,1", "0-8191,0-8191,0-8191,0-8191,0-8191"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		set, err := ParseCPUList(s)
		if err != nil {
			if set != nil {
				t.Fatalf("ParseCPUList(%q) = %v with error %v", s, set, err)
			}
			return
		}
		for i, c := range set {
			if c < 0 || c > maxCPU || i > 0 && set[i-1] >= c || !set.Has(c) {
				t.Fatalf("ParseCPUList(%q) = %v", s, []int(set))
			}
		}
		again, err := ParseCPUList(set.String())
		if err != nil || again.String() != set.String() || len(again) != len(set) {
			t.Fatalf("ParseCPUList(%q) = %q, which reads back as %q, %v", s, set, again, err)
		}
	})
}

// FuzzPick compares the table with brute force on graphs made of the input.
func FuzzPick(f *testing.F) {
	f.Add(uint32(1), uint8(6), uint64(0x3f), uint64(0x3f), uint8(3), uint8(0))
	f.Add(uint32(9), uint8(4), uint64(0xb), uint64(0xff), uint8(2), uint8(3))
	f.Fuzz(func(t *testing.T, seed uint32, n uint8, free, allowed uint64, k, c uint8) {
		gpus := 3 + int(n%4)
		g := irregular(gpus, seed).graph(t)
		all := FullMask(gpus)
		checkPick(t, NewTables(g, DefaultWeights()), newBrute(g, DefaultWeights()),
			Mask(free)&all, Mask(allowed), 1+int(k)%gpus, constraints()[int(c)%len(constraints())])
	})
}
