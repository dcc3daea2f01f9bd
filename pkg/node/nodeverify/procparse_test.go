// SPDX-License-Identifier: Apache-2.0

package nodeverify

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

const (
	statusText = "Name:\tpython 3\nUmask:\t0022\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\nMems_allowed:\t1\nMems_allowed_list:\t0\n"
	// Fields 4 (ppid) and 39 (processor) are 1 and 2.
	statText = "42 (a (b) c) S 1 42 42 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 3 0 100 1000 200 18446744073709551615 1 1 0 0 0 0 0 16781312 81922 0 0 0 17 2 0 0 0 0 0\n"
	mapsText = "7f0000000000 default file=/lib/libc.so.6 mapped=3 mapmax=9 N0=2 N1=1 kernelpagesize_kB=4\n" +
		"7f1000000000 bind:0 huge anon=2 dirty=2 N0=2 kernelpagesize_kB=2048\n" +
		"7f2000000000 default file=/tmp/N1\\040x\n"
	environText = "PATH=/bin\x00NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b\x00"
	cgroupText  = "4:memory:/kubepods/burstable/pod1-2/abc\n0::/\n"
)

func TestParseStatus(t *testing.T) {
	got, err := parseStatus(statusText)
	want := status{name: "python 3", cpus: nvtopo.CPUSet{0, 1, 2, 3}, nodes: nvtopo.CPUSet{0}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(status{})); diff != "" || err != nil {
		t.Errorf("error %v (-want,+got)\n%s", err, diff)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"without memory nodes":          {strings.ReplaceAll(statusText, "Mems_allowed_list", "other"), "Mems_allowed_list is missing"},
		"with a list that runs wrongly": {strings.ReplaceAll(statusText, "0-3", "3-0"), "Cpus_allowed_list: CPU list"},
	} {
		if _, err := parseStatus(tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, tc.want)
		}
	}
}

func TestParseStat(t *testing.T) {
	if got, err := parseStat(statText); err != nil || got != (stat{parent: 1, cpu: 2}) {
		t.Errorf("%+v, error %v; want parent 1, CPU 2", got, err)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"without a name":    {"42 S 1", "the name in parentheses is missing"},
		"that is cut short": {statText[:60], "fields after the name"},
		"with another CPU":  {strings.Replace(statText, " 17 2 0", " 17 -2 0", 1), "processor"},
	} {
		if _, err := parseStat(tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, tc.want)
		}
	}
}

func TestParseNUMAMaps(t *testing.T) {
	got, err := parseNUMAMaps(strings.NewReader(mapsText))
	if diff := cmp.Diff(map[int]int64{0: 2*4096 + 2*2<<20, 1: 4096}, got); diff != "" || err != nil {
		t.Errorf("error %v; bytes (-want,+got)\n%s", err, diff)
	}
	for name, tc := range map[string]struct{ line, want string }{
		"pages without their size": {"7f00 default N0=1", "line 1: kernelpagesize_kB is missing"},
		"a node that cannot be":    {"7f00 default N1024=1 kernelpagesize_kB=4", `line 1: field "N1024=1"`},
		"pages below zero":         {"7f00 default N0=-1 kernelpagesize_kB=4", `line 1: field "N0=-1"`},
		"more bytes than there are": {
			"7f00 default N0=9223372036854775807 kernelpagesize_kB=4", "too many pages",
		},
	} {
		if _, err := parseNUMAMaps(strings.NewReader(tc.line)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, tc.want)
		}
	}
}

func FuzzProc(f *testing.F) {
	for _, text := range []string{statusText, statText, mapsText, environText, cgroupText} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parseStatus(text); err == nil {
			again, err := parseStatus("Name:\t" + s.name + "\nCpus_allowed_list:\t" + s.cpus.String() + "\nMems_allowed_list:\t" + s.nodes.String() + "\n")
			if diff := cmp.Diff(s, again, cmp.AllowUnexported(status{})); diff != "" || err != nil {
				t.Errorf("status, written and read again: error %v\n%s", err, diff)
			}
		}
		if s, err := parseStat(text); err == nil && (s.cpu < 0 || s.parent < 0) {
			t.Errorf("%q is read as %+v", text, s)
		}
		if pages, err := parseNUMAMaps(strings.NewReader(text)); err == nil {
			for node, bytes := range pages {
				if bytes < 0 || node > maxNUMA {
					t.Errorf("%q: %d bytes on NUMA node %d", text, bytes, node)
				}
			}
		}
		for _, e := range parseEnviron(text) {
			if strings.Contains(e, "\x00") || !strings.Contains(text, e) {
				t.Errorf("%q is not a variable of %q", e, text)
			}
		}
		paths, err := parseCgroup(text)
		if err == nil && len(paths) != strings.Count(strings.TrimSuffix(text, "\n")+"\n", "\n") && text != "" {
			t.Errorf("%q has %d paths", text, len(paths))
		}
	})
}
