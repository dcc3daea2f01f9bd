// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const exposition = `# HELP apiserver_request_total Requests.
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",resource="pods",subresource="binding",verb="POST"} 7
apiserver_request_total{code="201",resource="pods",subresource="",verb="POST"} 5
apiserver_request_total{code="429",resource="pods",subresource="status",verb="PATCH"} 2
apiserver_request_total{code="200",resource="pods",subresource="",verb="LIST"} 9
apiserver_request_total{code="200",resource="podtemplates",subresource="",verb="LIST"} 9
apiserver_request_total{code="201",resource="events",subresource="",verb="POST"} 3
# TYPE unwanted counter
unwanted 1
# TYPE duration_seconds histogram
duration_seconds_bucket{result="scheduled",le="0.1"} 1
duration_seconds_bucket{result="scheduled",le="+Inf"} 2
duration_seconds_sum{result="scheduled"} 3
duration_seconds_count{result="scheduled"} 2
duration_seconds_bucket{result="error",le="0.1"} 8
duration_seconds_bucket{result="error",le="+Inf"} 8
duration_seconds_sum{result="error"} 0.1
duration_seconds_count{result="error"} 8
`

// TestMetricLabels: metrics are read by label.
func TestMetricLabels(t *testing.T) {
	f, err := parseMetrics(strings.NewReader(exposition), requestsName, "duration_seconds")
	if err != nil {
		t.Fatal(err)
	}
	if len(f) != 2 {
		t.Errorf("%d families, want 2", len(f))
	}
	want := map[string]float64{"POST pods/binding 201": 7, "POST pods 201": 5, "PATCH pods/status 429": 2, "POST events 201": 3}
	if diff := cmp.Diff(want, f.sums(requestsName, writeKey)); diff != "" {
		t.Error(diff)
	}
	// Two of the values are scheduled attempts: 0.1 s and more, which is beyond the last bound.
	if p50, p99, n := f.latencies("duration_seconds", map[string]string{"result": "scheduled"}); p50 != 100 || p99 != 100 || n != 2 {
		t.Errorf("scheduled: p50 %v, p99 %v of %d", p50, p99, n)
	}
	if p50, _, n := f.latencies("duration_seconds", nil); math.Abs(p50-1000./18) > 1e-9 || n != 10 {
		t.Errorf("all: p50 %v of %d", p50, n)
	}
	if _, _, n := f.latencies("nothing", nil); n != 0 {
		t.Errorf("%d of a metric that there is not", n)
	}
}

// TestSampleInterpolation: samples are interpolated.
func TestSampleInterpolation(t *testing.T) {
	zero := time.Unix(100, 0)
	s := samples{
		{zero, 0, 10 * time.Second},
		{zero.Add(time.Second), 2 * time.Second, 20 * time.Second},
		{zero.Add(2 * time.Second), 2 * time.Second, 30 * time.Second},
	}
	tests := map[string]struct {
		at   time.Duration
		want sample
	}{
		"before the first":   {-time.Second, s[0]},
		"at a sample":        {time.Second, s[1]},
		"between two":        {500 * time.Millisecond, sample{zero.Add(500 * time.Millisecond), time.Second, 15 * time.Second}},
		"after the last one": {time.Minute, s[2]},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := s.at(zero.Add(tc.at)); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestSizeShares: sizes keep the shares.
func TestSizeShares(t *testing.T) {
	count := func(sizes []int) map[int]int {
		out := map[int]int{}
		for _, s := range sizes {
			out[s]++
		}
		return out
	}
	mix := findWorkload("mix")
	got := mix.sizes(2000, 1)
	if diff := cmp.Diff(map[int]int{1: 1100, 2: 340, 4: 320, 8: 240}, count(got)); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(got, mix.sizes(2000, 1)) || slices.Equal(got, mix.sizes(2000, 2)) {
		t.Error("the order does not follow the seed")
	}
	if n := len(mix.sizes(7, 1)); n != 7 {
		t.Errorf("%d pods, want 7", n)
	}
}

// TestPodFitAcrossPolicies: pods fit under any policy.
func TestPodFitAcrossPolicies(t *testing.T) {
	tests := map[string]struct {
		workload      string
		wanted, nodes int
		want          int
	}{
		"one GPU":                    {"one", 2000, 1000, 2000},
		"one GPU, too many":          {"one", 2000, 100, 800},
		"whole nodes":                {"whole", 2000, 1000, 1000},
		"a mix takes a node at most": {"mix", 2000, 1000, 1000},
		"a mix with room":            {"mix", 2000, 5000, 2000},
		"without GPUs":               {"none", 2000, 50, 2000},
		"graphs are read first":      {"none-warm", 2000, 50, 6000},
		"a device of each node":      {"extended", 2000, 5000, 5000},
		"more nodes than that":       {"extended", 2000, 9000, 6000},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := findWorkload(tc.workload).fitting(tc.wanted, tc.nodes); got != tc.want {
				t.Errorf("%d pods, want %d", got, tc.want)
			}
		})
	}
}

// TestProfileDifferences: profiles differ only where they should.
func TestProfileDifferences(t *testing.T) {
	type entry struct {
		SchedulerName string
		Plugins       map[string]any
		PluginConfig  []struct {
			Name string
			Args map[string]any
		}
	}
	tests := map[string]struct {
		profile       string
		wantScheduler string
		wantOurs      bool
		wantShare     any // percentageOfNodesToScore; nil: left to the scheduler
		wantWrite     any
		wantNarrowTo  any
	}{
		"stock samples nodes":           {profile: profileStock, wantScheduler: "default-scheduler"},
		"stock that scores every node":  {profile: profileStockAll, wantScheduler: "default-scheduler", wantShare: 100.0},
		"ours with a PATCH":             {profile: "ours-prebind", wantScheduler: "topology-aware-scheduler", wantOurs: true, wantWrite: "PreBind"},
		"ours on the Binding":           {profile: profileBinding, wantScheduler: "topology-aware-scheduler", wantOurs: true, wantWrite: "Binding"},
		"ours with narrowing taken off": {profile: "ours-binding-no-narrowing", wantScheduler: "topology-aware-scheduler", wantOurs: true, wantWrite: "Binding", wantNarrowTo: 0.0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := findProfile(tc.profile).configure(123)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				LeaderElection           map[string]any
				ClientConnection         map[string]any
				PercentageOfNodesToScore any
				Profiles                 []entry
			}
			if err := yaml.Unmarshal(c.yaml, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]any{"leaderElect": false}, got.LeaderElection); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(map[string]any{"qps": 123.0, "burst": 246.0}, got.ClientConnection); diff != "" {
				t.Error(diff)
			}
			if strings.HasPrefix(tc.profile, profileStock) && got.PercentageOfNodesToScore != tc.wantShare {
				t.Errorf("%v %% of the nodes are scored, want %v", got.PercentageOfNodesToScore, tc.wantShare)
			}
			p := got.Profiles[0]
			if len(got.Profiles) != 1 || p.SchedulerName != tc.wantScheduler || c.schedulerName != tc.wantScheduler || (p.Plugins != nil) != tc.wantOurs {
				t.Errorf("profiles %+v for %q", got.Profiles, c.schedulerName)
			}
			args := map[string]map[string]any{}
			for _, a := range p.PluginConfig {
				args[a.Name] = a.Args
			}
			want := map[string]any{"defaultingType": "List", "defaultConstraints": []any{}}
			if diff := cmp.Diff(want, args[spreadPlugin]); diff != "" {
				t.Error(diff)
			}
			if args[topologyPlugin]["annotationWrite"] != tc.wantWrite || args[topologyPlugin]["narrowTo"] != tc.wantNarrowTo {
				t.Errorf("args of %s: %v", topologyPlugin, args[topologyPlugin])
			}
			if strings.Contains(string(c.yaml), "leaderLease") {
				t.Error("a leader's Lease is left")
			}
		})
	}
}

// tableText is the tables of some cells.
func tableText(t *testing.T, o *options, cells []Cell) string {
	t.Helper()
	g, err := o.group(cells)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, table := range o.serviceTables(g) {
		if err := table.Write(&b); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// containsAll reports each missing text.
func containsAll(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in\n%s", w, text)
		}
	}
}

// TestRatioPairing: ratios compare the same repeat.
func TestRatioPairing(t *testing.T) {
	o := &options{Nodes: []int{5}, Workloads: []string{"one"}, Profiles: []string{profileStock, profileBinding}}
	cell := func(profile string, repeat int, rate float64) Cell {
		return Cell{Nodes: 5, Workload: "one", Profile: profile, Repeat: repeat, Pods: 3, Service: &Service{PodsPerSecond: rate}}
	}
	// The machine got slower: in each repeat ours is twice as fast nevertheless.
	cells := []Cell{
		cell(profileBinding, 0, 200), cell(profileStock, 0, 100), cell(profileStock, 1, 50), cell(profileBinding, 1, 100),
		cell(profileStock, 2, 10), cell(profileBinding, 2, 20),
	}
	containsAll(t, tableText(t, o, cells), "| 5, one          | ours-binding | binding 1 of 3 |    100 |           2.00 (2.00–2.00) |",
		"5 nodes, 3 pods: one GPU a pod (3 repeats)", "| ours-binding |       100 (60–150) |")
	containsAll(t, tableText(t, o, cells[1:]), "| 5, one          | ours-binding | binding 1 of 3 |     60 |")
	containsAll(t, tableText(t, o, cells[:1]), "| 5, one          | ours-binding | binding 1 of 3 |    200 |                          – |")
}

// TestSummaryUnreadWindow: a summary shows the number of graphs not read before the window.
func TestSummaryUnreadWindow(t *testing.T) {
	o := &options{Nodes: []int{5}, Workloads: []string{"none-warm"}, Profiles: []string{profileStock, profileBinding}}
	cell := func(profile string, repeat, graphs int, peak float64) Cell {
		return Cell{
			Nodes: 5, Workload: "none-warm", Profile: profile, Repeat: repeat, Pods: 6,
			Service: &Service{WindowFrom: 3, GraphsRead: graphs, SchedulerPeakMiB: peak},
		}
	}
	text := tableText(t, o, []Cell{cell(profileStock, 0, 0, 100), cell(profileBinding, 0, 5, 150), cell(profileBinding, 1, 2, 150)})
	containsAll(t, text, "|        stock |                    binding 4 of 6 |", "| binding 4 of 6, 3 graphs not read |", "1.50 (1.50–1.50) |              – |")
}

// TestHostileComparison: hostile cells are compared with honest ones.
func TestHostileComparison(t *testing.T) {
	o := &options{
		Nodes: []int{5}, Workloads: []string{"mix"}, Profiles: []string{profileBinding, profileHostile + beforeSuffix, profileHostile},
		Hostile: 2, Writes: 3, Renewals: 4,
	}
	if !o.hostile() || findProfile(profileBinding+beforeSuffix).hostile {
		t.Error("which profiles are hostile is not known by their names")
	}
	cell := func(profile string, rate, p99 float64) Cell {
		return Cell{Nodes: 5, Workload: "mix", Profile: profile, Pods: 3, Service: &Service{PodsPerSecond: rate, RenewalP99Ms: p99}}
	}
	text := tableText(t, o, []Cell{cell(profileBinding, 100, 10), cell(profileHostile+beforeSuffix, 40, 300), cell(profileHostile, 80, 15)})
	containsAll(t, text, "With 2 hostile nodes, which want to publish 3 objects a second, and 4 renewals", "0.80 (0.80–0.80)", "1.50 (1.50–1.50)")
}

func TestFlags(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string // part of the error; empty: accepted
	}{
		"the defaults":                  {nil, ""},
		"short, but more pods":          {[]string{"-short", "-pods", "99"}, ""},
		"a size that is no number":      {[]string{"-nodes", "5,x"}, `"x" is not a number of nodes`},
		"an unknown workload":           {[]string{"-workloads", "two"}, `no "two"`},
		"an unknown profile":            {[]string{"-profiles", "theirs"}, `no "theirs"`},
		"no repeats":                    {[]string{"-repeats", "0"}, "-repeats"},
		"another scheduler":             {[]string{"-against", os.Args[0], "-profiles", "stock,ours-prebind"}, ""},
		"another that is not there":     {[]string{"-against", "/nonexistent"}, "the scheduler is missing"},
		"a scheduler that is not there": {[]string{"-scheduler", "/nonexistent"}, "the scheduler is missing"},
		"an argument":                   {[]string{"now"}, `unexpected argument "now"`},
		"too many hostile nodes":        {[]string{"-short", "-profiles", profileHostile}, "fewer than half"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			// This program stands where a scheduler is expected; it is not started.
			o, err := parse(append([]string{"-scheduler", os.Args[0]}, tc.args...), io.Discard)
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q in it", err, tc.want)
			case name == "another scheduler" && !slices.Equal(o.Profiles, []string{"stock", "ours-prebind-before", "ours-prebind"}):
				t.Errorf("profiles %v", o.Profiles)
			case name == "short, but more pods" && (o.Pods != 99 || o.Nodes[0] != 50 || len(o.Profiles) != 2):
				t.Errorf("options %+v", o)
			}
		})
	}
}
