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

func TestQuantile(t *testing.T) {
	h := histogram{bounds: []float64{1, 2, 4}, counts: []float64{10, 10, 30}, count: 40, sum: 100}
	tests := map[string]struct {
		h    histogram
		q    float64
		want float64
	}{
		"inside the first bucket":         {h, 0.125, 0.5},
		"an empty bucket is passed over":  {h, 0.5, 3},
		"the end of a bucket":             {h, 0.75, 4},
		"beyond the last bound":           {h, 0.99, 4},
		"all samples in the first bucket": {histogram{bounds: []float64{2, 4}, counts: []float64{4, 4}, count: 4}, 0.5, 1},
		"no samples":                      {histogram{bounds: []float64{1}, counts: []float64{0}}, 0.5, math.NaN()},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := tc.h.quantile(tc.q)
			if got != tc.want && !(math.IsNaN(got) && math.IsNaN(tc.want)) {
				t.Errorf("quantile %v is %v, want %v", tc.q, got, tc.want)
			}
		})
	}
	if got := h.mean(); got != 2.5 {
		t.Errorf("the mean is %v, want 2.5", got)
	}
}

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
	scheduled := f.histogram("duration_seconds", map[string]string{"result": "scheduled"})
	if scheduled.count != 2 || scheduled.sum != 3 || !slices.Equal(scheduled.bounds, []float64{0.1}) || !slices.Equal(scheduled.counts, []float64{1}) {
		t.Errorf("scheduled: %+v", scheduled)
	}
	if all := f.histogram("duration_seconds", nil); all.count != 10 || !slices.Equal(all.counts, []float64{9}) {
		t.Errorf("all: %+v", all)
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

// TestPodFitAcrossPolicies: pods fit whatever the policy.
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
		"ours with a PATCH":             {profile: profilePreBind, wantScheduler: "topology-aware-scheduler", wantOurs: true, wantWrite: "PreBind"},
		"ours on the Binding":           {profile: profileBinding, wantScheduler: "topology-aware-scheduler", wantOurs: true, wantWrite: "Binding"},
		"ours with narrowing taken off": {profile: profileNoNarrowing, wantScheduler: "topology-aware-scheduler", wantOurs: true, wantWrite: "Binding", wantNarrowTo: 0.0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := configure(tc.profile, 123)
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

// TestRatioPairing: ratios compare the same repeat.
func TestRatioPairing(t *testing.T) {
	o := &options{Nodes: []int{5}, Workloads: []string{"one"}, Profiles: []string{profileStock, profileBinding}}
	cell := func(profile string, repeat int, rate float64) Cell {
		return Cell{Nodes: 5, Workload: "one", Profile: profile, Repeat: repeat, Pods: 3, PodsPerSecond: rate, Attempts: map[string]float64{"scheduled": 3, "error": 1}}
	}
	// The machine got slower: in each repeat ours is twice as fast nevertheless.
	cells := []Cell{
		cell(profileBinding, 0, 200), cell(profileStock, 0, 100), cell(profileStock, 1, 50), cell(profileBinding, 1, 100),
		cell(profileStock, 2, 10), cell(profileBinding, 2, 20),
	}
	got := newResult(o, cells).Summary
	if len(got) != 2 || got[0].Profile != profileStock || got[1].Profile != profileBinding {
		t.Fatalf("rows: %+v", got)
	}
	if r := got[1].RatioToStock; r == nil || *r != (Spread{2, 2, 2}) || got[1].PodsPerSecond.Median != 100 || got[1].Unscheduled != 1 || got[1].Repeats != 3 {
		t.Errorf("ours: %+v, ratio %+v", got[1], r)
	}
	var b strings.Builder
	if err := tableOf(o, cells).Write(&b); err != nil || !strings.Contains(b.String(), "2.00 (2.00–2.00)") {
		t.Errorf("table: %v\n%s", err, &b)
	}
	b.Reset()
	if err := printTables(&b, o, cells[1:]); err != nil || !strings.Contains(b.String(), "| 5, one          | ours-binding | binding 1 of 3 |     60 |") {
		t.Errorf("all tables: %v\n%s", err, &b)
	}
	alone := summarise(o, cells[:1])
	if len(alone) != 1 || alone[0].RatioToStock != nil {
		t.Errorf("without stock: %+v", alone)
	}
}

// TestSummaryUnreadWindow: a summary says what was not read before the window.
func TestSummaryUnreadWindow(t *testing.T) {
	o := &options{Nodes: []int{5}, Workloads: []string{"none-warm"}, Profiles: []string{profileStock, profileBinding}}
	cells := []Cell{
		{Nodes: 5, Workload: "none-warm", Profile: profileStock, Pods: 6, WindowFrom: 3, SchedulerPeakMiB: 100},
		{Nodes: 5, Workload: "none-warm", Profile: profileBinding, Pods: 6, WindowFrom: 3, GraphsRead: 5, SchedulerPeakMiB: 150},
		{Nodes: 5, Workload: "none-warm", Profile: profileBinding, Repeat: 1, Pods: 6, WindowFrom: 3, GraphsRead: 2, SchedulerPeakMiB: 150},
	}
	rows := newResult(o, cells).Summary
	if got := rows[0].begins(); got != "binding 4 of 6" {
		t.Errorf("stock: the window begins at %s", got)
	}
	if got := rows[1].begins(); got != "binding 4 of 6, 3 graphs not read" {
		t.Errorf("ours: the window begins at %s", got)
	}
	if p := rows[1].PeakToStock; p == nil || p.Median != 1.5 {
		t.Errorf("peak memory to stock's: %+v", p)
	}
	if got := rows[1].gpuWrites(); got != "–" {
		t.Errorf("writes a GPU pod where there is none: %s", got)
	}
}

// TestHostileComparison: hostile cells are compared with honest ones.
func TestHostileComparison(t *testing.T) {
	o := &options{
		Nodes: []int{5}, Workloads: []string{"mix"}, Profiles: []string{profileBinding, profileHostile + beforeSuffix, profileHostile},
		Hostile: 2, Writes: 3, Renewals: 4,
	}
	if !o.hostile() || isHostile(profileBinding+beforeSuffix) {
		t.Error("which profiles are hostile is not known by their names")
	}
	cell := func(profile string, rate, p99 float64) Cell {
		return Cell{Nodes: 5, Workload: "mix", Profile: profile, Pods: 3, PodsPerSecond: rate, RenewalP99Ms: p99}
	}
	cells := []Cell{cell(profileBinding, 100, 10), cell(profileHostile+beforeSuffix, 40, 300), cell(profileHostile, 80, 15)}
	rows := newResult(o, cells).Summary
	if r := rows[2]; r.RatioToHonest.Median != 0.8 || r.RenewalsToHonest.Median != 1.5 {
		t.Errorf("hostile: %+v of the rate, %+v of the p99", r.RatioToHonest, r.RenewalsToHonest)
	}
	var b strings.Builder
	if err := printTables(&b, o, cells); err != nil || !strings.Contains(b.String(), "With 2 hostile nodes, which want to publish 3 objects a second, and 4 renewals") {
		t.Errorf("tables: %v\n%s", err, &b)
	}
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

// TestOlderSchedulerPlugins: a plugin that an older scheduler does not have is left out: it would
// not start.
func TestOlderSchedulerPlugins(t *testing.T) {
	c, err := configure(profileBinding+beforeSuffix, 1)
	if err != nil {
		t.Fatal(err)
	}
	const plugin = "GangPlacement"
	if !strings.Contains(string(c.yaml), plugin) {
		t.Fatalf("the profile has no %s", plugin)
	}
	if err := c.leaveOut(plugin); err != nil {
		t.Fatal(err)
	}
	if text := string(c.yaml); strings.Contains(text, plugin) || !strings.Contains(text, topologyPlugin) {
		t.Errorf("without %s the profile is\n%s", plugin, text)
	}
}
