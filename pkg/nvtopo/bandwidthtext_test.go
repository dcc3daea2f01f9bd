// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"strings"
	"testing"
)

// TestParseBandwidth: bandwidths are parsed in GB/s or with a unit, and ambiguous ones are refused.
func TestParseBandwidth(t *testing.T) {
	for text, want := range map[string]int64{
		"100": 100e6, " 12.5 ": 12_500_000, "1e2": 100e6, "0.000001": 1, "300": 300e6,
		"100GB/s": 100e6, "100 GB/s": 100e6, "100GBps": 100e6, "800Gb/s": 100e6, "800 Gbps": 100e6, "800Gbit/s": 100e6,
		"1TB/s": 1000e6, "400MB/s": 400e3, "8kb/s": 1, "8Kb/s": 1, "1000B/s": 1, "1e3GB/s": 1000e6, "1000000": 1e12,
	} {
		if got, err := ParseBandwidth(text); err != nil || got != want {
			t.Errorf("%q: %d kB/s, error %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"100G":  "may mean bytes or bits in a second: write 100GB/s, or 100Gb/s, which is an eighth of that",
		"100GB": "write 100GB/s, or 100Gb/s", "100 Gb": "write 100GB/s, or 100Gb/s", "100GiB": "write 100GB/s",
		"": "is not a number of GB/s", "fast": "is not a number of GB/s", "GB/s": "is not a number of GB/s", "100 furlongs": "such as 100GB/s or 800Gb/s",
		"0": "want more than 0", "0Gb/s": "want more than 0", "-1": "want more than 0", "NaN": "want more than 0", "Inf": "want more than 0",
		"1000001": "at most 1000000 GB/s", "1001TB/s": "at most 1000000 GB/s", "1b/s": "is less than 1 kB/s", "100gb/s": "is not a number of GB/s",
	} {
		if got, err := ParseBandwidth(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %d kB/s, error %v, want %q", text, got, err, want)
		}
	}
}

func FuzzParseBandwidth(f *testing.F) {
	for _, text := range []string{"100", "800Gb/s", "100G", "0x1p3", "1_0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if kBps, err := ParseBandwidth(text); err == nil && (kBps < 1 || kBps > 1e12) {
			t.Errorf("%q: %d kB/s", text, kBps)
		}
	})
}
