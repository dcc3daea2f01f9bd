// SPDX-License-Identifier: Apache-2.0

package nvml

import "testing"

func TestParsePCIAddr(t *testing.T) {
	tests := map[string]struct {
		want       string
		wantHidden bool
		wantErr    bool
	}{
		"00000000:07:00.0": {want: "0000:07:00.0"},
		"0000:07:00.0":     {want: "0000:07:00.0"},
		"0000000F:01:00.0": {want: "000f:01:00.0"},
		"00010000:AB:1F.7": {want: "10000:ab:1f.7"},
		"0001:00:00":       {want: "0001:00:00.0"},
		"FFFFFFFF:FF:FF.0": {want: "ffffffff:ff:ff.0", wantHidden: true},
		"fffffff:ff:ff.0":  {want: "fffffff:ff:ff.0", wantHidden: true},
		"0000:ff:1f.3":     {want: "0000:ff:1f.3"}, // an Intel socket's own device
		"":                 {wantErr: true},
		"07:00.0":          {wantErr: true},
		"0000:07:20.0":     {wantErr: true},
		"0000:07:00.8":     {wantErr: true},
		"0000:107:00.0":    {wantErr: true},
		"0000:+7:00.0":     {wantErr: true},
		"0000:07:00.0:1":   {wantErr: true},
		"pci0000:07:00.0":  {wantErr: true},
	}
	for in, tc := range tests {
		t.Run(in, func(t *testing.T) {
			got, err := parsePCIAddr(in)
			if (err != nil) != tc.wantErr {
				t.Fatalf("error %v, want one: %v", err, tc.wantErr)
			}
			if err == nil && (got.String() != tc.want || got.hidden() != tc.wantHidden) {
				t.Errorf("got %s hidden=%v, want %s hidden=%v", got, got.hidden(), tc.want, tc.wantHidden)
			}
		})
	}
}

func FuzzParsePCIAddr(f *testing.F) {
	f.Add("00000000:07:00.0")
	f.Add(allOnes)
	f.Fuzz(func(t *testing.T, in string) {
		a, err := parsePCIAddr(in)
		if err != nil {
			return
		}
		if again, err := parsePCIAddr(a.String()); err != nil || again != a {
			t.Errorf("%q reads as %s, which reads as %s (%v)", in, a, again, err)
		}
	})
}
