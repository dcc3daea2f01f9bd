// SPDX-License-Identifier: Apache-2.0

package openmp

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

func TestBindings(t *testing.T) {
	for name, tc := range map[string]struct {
		environment []string
		want        string // VARIABLE CPUS, or VARIABLE error
	}{
		"nothing is set":                    {},
		"a list of GCC":                     {environment: []string{"GOMP_CPU_AFFINITY=0 3 1-2 4-15:2"}, want: "GOMP_CPU_AFFINITY 0-4,6,8,10,12,14"},
		"a list of GCC with commas":         {environment: []string{"GOMP_CPU_AFFINITY=0,1, 2"}, want: "GOMP_CPU_AFFINITY 0-2"},
		"the last of one name counts":       {environment: []string{"GOMP_CPU_AFFINITY=0-3", "GOMP_CPU_AFFINITY=8-11"}, want: "GOMP_CPU_AFFINITY 8-11"},
		"nothing is bound":                  {environment: []string{"GOMP_CPU_AFFINITY=0-3", "OMP_PROC_BIND=FALSE"}},
		"a range downwards":                 {environment: []string{"GOMP_CPU_AFFINITY=3-0"}, want: "GOMP_CPU_AFFINITY error"},
		"a stride of none":                  {environment: []string{"GOMP_CPU_AFFINITY=0-3:0"}, want: "GOMP_CPU_AFFINITY error"},
		"a CPU that no machine has":         {environment: []string{"GOMP_CPU_AFFINITY=9000"}, want: "GOMP_CPU_AFFINITY error"},
		"places by name":                    {environment: []string{"OMP_PLACES=cores(4)"}},
		"places of numbers":                 {environment: []string{"OMP_PLACES={0,1},{4:4},{16:3:2}"}, want: "OMP_PLACES 0-1,4-7,16,18,20"},
		"places that repeat":                {environment: []string{"OMP_PLACES={0:2}:3:8"}, want: "OMP_PLACES 0-1,8-9,16-17"},
		"places without braces":             {environment: []string{"OMP_PLACES=0:4,12"}, want: "OMP_PLACES 0-3,12"},
		"places downwards":                  {environment: []string{"OMP_PLACES={7}:4:-2"}, want: "OMP_PLACES 1,3,5,7"},
		"places below none":                 {environment: []string{"OMP_PLACES={1}:4:-2"}, want: "OMP_PLACES error"},
		"places that are left out":          {environment: []string{"OMP_PLACES={0:8},!{3}"}, want: "OMP_PLACES error"},
		"a place without an end":            {environment: []string{"OMP_PLACES={0:8"}, want: "OMP_PLACES error"},
		"more places than there are":        {environment: []string{"OMP_PLACES={0:8000}:32000:0"}, want: "OMP_PLACES error"},
		"a list of LLVM":                    {environment: []string{"KMP_AFFINITY=verbose,granularity=fine,proclist=[0,{2,3},8-10],explicit"}, want: "KMP_AFFINITY 0,2-3,8-10"},
		"a list of LLVM that does not bind": {environment: []string{"KMP_AFFINITY=proclist=[0],compact"}},
		"LLVM without a list":               {environment: []string{"KMP_AFFINITY=granularity=fine,compact,1,0"}},
		"two variables":                     {environment: []string{"OMP_PLACES={0}", "GOMP_CPU_AFFINITY=1"}, want: "OMP_PLACES 0, GOMP_CPU_AFFINITY 1"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, b := range Bindings(tc.environment) {
				if got != "" {
					got += ", "
				}
				got += b.Variable + " "
				if b.Err != nil {
					got += "error"
				} else {
					got += b.CPUs.String()
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestOutside(t *testing.T) {
	environment := []string{"OMP_PLACES={0:4}", "GOMP_CPU_AFFINITY=2-5", "KMP_AFFINITY=proclist=[x],explicit"}
	for name, tc := range map[string]struct {
		allowed nvtopo.CPUSet
		want    string
	}{
		"all are allowed":  {nvtopo.NewCPUSet(0, 1, 2, 3, 4, 5, 6, 7), ""},
		"one is elsewhere": {nvtopo.NewCPUSet(0, 1, 2, 3), "GOMP_CPU_AFFINITY names CPUs 4-5; the container may use 0-3"},
		"both are": {
			nvtopo.NewCPUSet(8, 9), "OMP_PLACES names CPUs 0-3 and GOMP_CPU_AFFINITY names CPUs 2-5; the container may use 8-9",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Outside(environment, tc.allowed); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestLongLists: of a long list its beginning is named, which ends behind a CPU or a range.
func TestLongLists(t *testing.T) {
	got := Outside([]string{"GOMP_CPU_AFFINITY=0-8190:2"}, nvtopo.NewCPUSet(1))
	const want = "GOMP_CPU_AFFINITY names CPUs 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,56,58,60,62,64,66,68,70,72,74,76,78,80,82,84,86,…; the container may use 1"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzBindings: whatever a tenant writes is read as CPUs that may exist, or as an error.
func FuzzBindings(f *testing.F) {
	f.Add("{0:4}:2:4", "0 3 4-10:2", "explicit,proclist=[0,{2,3}]")
	f.Add("{0}:99999999:-1", "0-4294967295:1", "proclist=[")
	f.Fuzz(func(t *testing.T, places, gnu, kmp string) {
		for _, b := range Bindings([]string{Places + "=" + places, GNUAffinity + "=" + gnu, KMPAffinity + "=" + kmp}) {
			if (b.Err == nil) != (len(b.CPUs) > 0) {
				t.Errorf("%+v, want either CPUs or an error", b)
			}
			for _, cpu := range b.CPUs {
				if cpu < 0 || cpu > maxCPU {
					t.Errorf("%s: CPU %d", b.Variable, cpu)
				}
			}
		}
	})
}
