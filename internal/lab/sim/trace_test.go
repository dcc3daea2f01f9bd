// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"encoding/csv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTraces: traces are read.
func TestTraces(t *testing.T) {
	cases := map[string]struct {
		text string
		want []Job
	}{
		"all columns": {
			"arrival_s,duration_s,gpus,pods\n0,10,1,1\n1.5,2e3,8,4\n",
			jobs([4]float64{0, 10, 1, 1}, [4]float64{1.5, 2000, 8, 4}),
		},
		"without pods, in another order and from Windows": {
			"\ufeffgpus,arrival_s,duration_s\r\n2,7,0.5\r\n",
			jobs([4]float64{7, 0.5, 2, 1}),
		},
		"an empty gang size is 1": {
			"arrival_s,duration_s,gpus,pods\n0,10,1,\n",
			jobs([4]float64{0, 10, 1, 1}),
		},
		"an openb list with times": {
			"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n" +
				"a,1,1,1,460,,LS,Succeeded,100,400,150\n" + // part of a GPU, waited 50 s
				"b,1,1,0,0,,LS,Succeeded,110,400,150\n" + // no GPU
				"c,1,1,8,1000,V100M16|V100M32,LS,Failed,120,130,\n", // never scheduled by its list
			jobs([4]float64{100, 250, 1, 1}, [4]float64{120, 10, 8, 1}),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ReadTrace(strings.NewReader(tc.text), 1)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("jobs (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestUntimedListSeed: lists without times get them from the seed.
func TestUntimedListSeed(t *testing.T) {
	var text strings.Builder
	text.WriteString("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n")
	for i := range 4000 {
		text.WriteString([]string{"a,1,1,1,500\n", "b,1,1,2,1000\n", "c,1,1,0,0\n", "d,1,1,8,1000\n"}[i/1000])
	}
	read := func(seed uint64) []Job {
		got, err := ReadTrace(strings.NewReader(text.String()), seed)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := read(1)
	if !slices.Equal(got, read(1)) || slices.Equal(got, read(2)) {
		t.Error("the times do not depend on the seed alone")
	}
	sizes := map[int]int{}
	early := map[int]int{}
	for i, j := range got {
		sizes[j.GPUs]++
		if i < 1500 {
			early[j.GPUs]++
		}
	}
	if diff := cmp.Diff(map[int]int{1: 1000, 2: 1000, 8: 1000}, sizes); diff != "" {
		t.Errorf("pods by size (-want,+got):\n%s", diff)
	}
	// The list is sorted by size, the trace must not be: 500 of each in its first half.
	for k, n := range early {
		if n < 400 || n > 600 {
			t.Errorf("%d of the first 1500 pods have %d GPUs, want about 500", n, k)
		}
	}
	checkDurations(t, got, phillyDurations(1))
	checkPoisson(t, got)
}

// TestTraceErrors: bad traces are refused with their place.
func TestTraceErrors(t *testing.T) {
	const header = "arrival_s,duration_s,gpus,pods\n"
	const openbHeader = "num_gpu,creation_time,deletion_time,scheduled_time\n"
	cases := map[string]struct{ text, want string }{
		"nothing":                       {"", "empty"},
		"a header only":                 {header, "no jobs"},
		"no header":                     {"0,10,1,1\n", `line 1, column 1: unknown column "0"`},
		"a column missing":              {"arrival_s,gpus\n1,1\n", `line 1: no column "duration_s"`},
		"a misspelt column":             {"arrival_s,duration_s,gpus,pod\n", `line 1, column 27: unknown column "pod"`},
		"a column twice":                {"arrival_s,duration_s,gpus,gpus\n", `line 1, column 27: "gpus" is there twice`},
		"a cell missing":                {header + "0,10,1\n", "line 2: 3 cells, want 4: arrival_s,duration_s,gpus,pods"},
		"a stray quote":                 {header + "0,10,1,\"\n", "line 2, column 10"},
		"an arrival in words":           {header + "0,1,1,1\nsoon,10,1,1\n", `line 3, column 1: arrival_s "soon"`},
		"an arrival before the start":   {header + "-1,10,1,1\n", `line 2, column 1: arrival_s "-1"`},
		"a duration that is none":       {header + "0,NaN,1,1\n", `line 2, column 3: duration_s "NaN"`},
		"a duration without end":        {header + "0,Inf,1,1\n", `line 2, column 3: duration_s "Inf"`},
		"a duration of nothing":         {header + "0,0,1,1\n", `line 2, column 3: duration_s "0": a job of no time`},
		"no GPUs":                       {header + "0,10,0,1\n", `line 2, column 6: gpus "0": want a whole number from 1 to 64`},
		"half a GPU":                    {header + "0,10,0.5,1\n", `line 2, column 6: gpus "0.5"`},
		"too many GPUs":                 {header + "0,10,65,1\n", `gpus "65"`},
		"a gang of none":                {header + "0,10,1,0\n", `line 2, column 8: pods "0"`},
		"an openb list without GPUs":    {openbHeader + "0,1,2,1\n", "no jobs"},
		"an openb pod that ends early":  {openbHeader + "1,100,90,\n", `line 2, column 7: deletion_time "90": the pod ends before it starts`},
		"an openb pod of negative size": {openbHeader + "-1,100,190,\n", `line 2, column 1: num_gpu "-1"`},
		"an openb end without a start":  {"num_gpu,deletion_time\n1,7\n", `line 2, column 3: deletion_time "7": without a column creation_time`},
		"a creation time missing":       {openbHeader + "1,,190,\n", `creation_time ""`},
		"an unknown openb column":       {"num_gpu,gpus\n1,1\n", `line 1, column 9: unknown column "gpus"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ReadTrace(strings.NewReader(tc.text), 1)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q (jobs %v)", err, tc.want, got)
			}
		})
	}
}

// FuzzReadTrace: whatever is accepted can be replayed and survives a round trip.
func FuzzReadTrace(f *testing.F) {
	f.Add("arrival_s,duration_s,gpus,pods\n0,10,1,1\n1.5,2e3,8,4\n")
	f.Add("gpus,duration_s,arrival_s\n1,0x1p-3,007\n")
	f.Add("num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n1,460,1,9,\n0,0,2,,\n")
	f.Add("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,8,1000\n")
	f.Add("arrival_s,duration_s,gpus\n\"0\",\"1\n\",1\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ReadTrace(strings.NewReader(text), 1)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("an error without words")
			}
			return
		}
		for i := range got {
			if err := got[i].check(); err != nil {
				t.Fatalf("job %d: %v", i, err)
			}
		}
		var b bytes.Buffer
		if err := writeTrace(&b, got); err != nil {
			t.Fatal(err)
		}
		again, err := ReadTrace(&b, 2)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if diff := cmp.Diff(got, again); diff != "" {
			t.Errorf("round trip (-want,+got):\n%s", diff)
		}
	})
}

// TestOpenbFixtureMix: the openb fixture has the published mix.
func TestOpenbFixtureMix(t *testing.T) {
	dir := os.Getenv("NVTOPO_FIXTURES")
	if dir == "" {
		t.Skip("NVTOPO_FIXTURES is not set")
	}
	f, err := os.Open(filepath.Join(dir, "traces", "openb_pod_list_multigpu50.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	trace, err := ReadTrace(f, 1)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]int{}
	for _, j := range trace {
		got[j.GPUs]++
	}
	if diff := cmp.Diff(map[int]int{1: 6989, 2: 222, 4: 206, 8: 556}, got); diff != "" {
		t.Errorf("pods by size (-want,+got):\n%s", diff)
	}
	checkDurations(t, trace, phillyDurations(1))
	r := mustRun(t, Config{Nodes: clusterOf(t, slices.Repeat([]string{"v100-pcie-8"}, 64)...), Jobs: trace, Policy: Ours, Load: 0.85, WarmUp: DefaultWarmUp})
	if r.BestClassShare < 0.99 {
		t.Errorf("best class %v at load 0.85, want 0.99", r.BestClassShare)
	}
}

// writeTrace writes jobs so that ReadTrace reads the same ones.
func writeTrace(w io.Writer, jobs []Job) error {
	out := csv.NewWriter(w)
	if err := out.Write(ownColumns); err != nil {
		return err
	}
	for _, j := range jobs {
		err := out.Write([]string{
			strconv.FormatFloat(j.ArrivalS, 'g', -1, 64), strconv.FormatFloat(j.DurationS, 'g', -1, 64),
			strconv.Itoa(j.GPUs), strconv.Itoa(j.Pods),
		})
		if err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
