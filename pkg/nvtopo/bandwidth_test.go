// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "testing"

func TestFabricPerLink(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		kind  LinkKind
		model string
		want  int64
	}{
		"NVLink is NVIDIA's table":        {KindNVLink, "NVIDIA B200", 50_000_000},
		"an MI100":                        {KindXGMI, "AMD Instinct MI100", 46_000_000},
		"an MI250X":                       {KindXGMI, "AMD Instinct MI250X", 50_000_000},
		"an MI300X":                       {KindXGMI, "AMD_Instinct_MI300X_OAM", 64_000_000},
		"an MI325X":                       {KindXGMI, "mi325x", 64_000_000},
		"an MI355X":                       {KindXGMI, "AMD Instinct MI355X", 76_800_000},
		"XGMI of a model nobody named":    {KindXGMI, "", 50_000_000},
		"the first Ascend 910":            {KindHCCS, "Ascend910ProA", 30_000_000},
		"an Ascend 910B3":                 {KindHCCS, "Ascend 910B3", 28_000_000},
		"910 alone is also a 910C's name": {KindHCCS, "Ascend910", 28_000_000},
		"PCIe has no fabric link":         {KindPCIe, "AMD Instinct MI300X", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := FabricPerLink(tc.kind, tc.model); got != tc.want {
				t.Errorf("%d kB/s, want %d", got, tc.want)
			}
		})
	}
}

func TestLinkOverHops(t *testing.T) {
	t.Parallel()
	one := NewLink(Class{Kind: KindXGMI, Lanes: 1}, PCIeUnknown, 0, 50_000_000, false)
	if got := one.Over(1); got != one {
		t.Errorf("over one hop it is %+v, want %+v", got, one)
	}
	if got := one.Over(2); got.Class != one.Class || got.Bandwidth != 25_000_000 || got.Latency != 2_000 {
		t.Errorf("over two hops it is %+v, want half the bandwidth and twice the latency of %+v", got, one)
	}
}

// TestFormatGBps: a bandwidth has no more digits than it needs, and no exponent.
func TestFormatGBps(t *testing.T) {
	for kBps, want := range map[int64]string{0: "0", 25_000_000: "25", 12_500_000: "12.5", 1: "0.000001", 1_000_000_000_000: "1000000"} {
		if got := FormatGBps(kBps); got != want {
			t.Errorf("%d kB/s: %q, want %q", kBps, got, want)
		}
	}
}
