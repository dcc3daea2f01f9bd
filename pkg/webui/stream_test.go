// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
)

// page is what a client shows: the lists by key, each row as it came.
type page struct {
	version          int64
	id               string
	nodes, workloads map[string]any
	supply, counts   any
}

// fetched is the page of who fetches everything.
func (e *testEnv) fetched(t *testing.T) *page {
	t.Helper()
	var cluster struct {
		Version int64
		Supply  any
		Nodes   []map[string]any
	}
	var pods struct {
		Version int64
		Counts  any
		Items   []map[string]any
	}
	e.get(t, "/api/v1/cluster", &cluster)
	e.get(t, "/api/v1/workloads", &pods)
	p := &page{version: min(cluster.Version, pods.Version), nodes: map[string]any{}, workloads: map[string]any{}, supply: cluster.Supply, counts: pods.Counts}
	for _, n := range cluster.Nodes {
		p.nodes[n["name"].(string)] = n
	}
	for _, w := range pods.Items {
		p.workloads[w["namespace"].(string)+"/"+w["name"].(string)] = w
	}
	p.id = strconv.FormatInt(p.version, 10)
	return p
}

// follow takes events in until the page is of a version. Where the server cannot tell what changed,
// it fetches everything.
func (p *page) follow(t *testing.T, b *testEnv, events <-chan received, version int64) {
	t.Helper()
	for p.id < strconv.FormatInt(version, 10) {
		if e := next(t, events); e.name == "hello" && e.id != p.id {
			*p = *b.fetched(t)
		} else {
			p.apply(t, e)
		}
	}
}

// apply takes an event in.
func (p *page) apply(t *testing.T, e received) {
	t.Helper()
	var data struct {
		Version int64
		Supply  any
		Counts  any
		Changed []map[string]any
		Removed []string
	}
	if e.name == "" {
		return // a comment
	}
	if err := json.Unmarshal([]byte(e.data), &data); err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
	rows := p.nodes
	switch e.name {
	case "nodes":
		p.supply = data.Supply
	case "workloads":
		p.counts, rows = data.Counts, p.workloads
	}
	for _, row := range data.Changed {
		key := row["name"].(string)
		if e.name == "workloads" {
			key = row["namespace"].(string) + "/" + key
		}
		rows[key] = row
	}
	for _, key := range data.Removed {
		delete(rows, key)
	}
	p.version, p.id = data.Version, e.id
}

// change makes a random change at the API server.
func (e *testEnv) change(t *testing.T, r *rand.Rand, c *viewtest.Cluster, count int) {
	t.Helper()
	ctx, pods, nodes := t.Context(), e.kube.CoreV1().Pods("default"), e.kube.CoreV1().Nodes()
	all, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	version := strconv.Itoa(1000 + count)
	switch kind := r.IntN(4); {
	case kind == 0 || len(all.Items) == 0:
		node := c.Nodes[r.IntN(len(c.Nodes))].Name
		p := c.AddPod("p"+strconv.Itoa(count), node, 1, r.IntN(4)).DeepCopy()
		if p.ResourceVersion = version; r.IntN(2) == 0 {
			p.Spec.NodeName, p.Annotations = "", nil
			p.Status.Phase = v1.PodPending
		}
		_, err = pods.Create(ctx, p, metav1.CreateOptions{})
	case kind == 1:
		err = pods.Delete(ctx, all.Items[r.IntN(len(all.Items))].Name, metav1.DeleteOptions{})
	case kind == 2:
		p := all.Items[r.IntN(len(all.Items))]
		p.ResourceVersion, p.Status.Phase = version, []v1.PodPhase{v1.PodRunning, v1.PodFailed, v1.PodSucceeded}[r.IntN(3)]
		_, err = pods.Update(ctx, &p, metav1.UpdateOptions{})
	default:
		n, getErr := nodes.Get(ctx, c.Nodes[r.IntN(len(c.Nodes))].Name, metav1.GetOptions{})
		if getErr != nil {
			t.Fatal(getErr)
		}
		n.ResourceVersion, n.Spec.Unschedulable = version, !n.Spec.Unschedulable
		_, err = nodes.Update(ctx, n, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestClientConsistency: a client that applies changes has what one that fetches has. While a
// cluster changes at random, and the connection breaks now and then.
func TestClientConsistency(t *testing.T) {
	c := sample(t)
	b := newTestEnv(t, c, nil)
	r := rand.New(rand.NewPCG(5, 6))
	mine := b.fetched(t)
	hangUp, events := b.follow(t, map[string]string{"Last-Event-ID": mine.id})
	for round := range 25 {
		for i := range 1 + r.IntN(6) {
			b.change(t, r, c, round*10+i)
		}
		if r.IntN(4) == 0 {
			hangUp()
			hangUp, events = b.follow(t, map[string]string{"Last-Event-ID": mine.id})
		}
		b.clock.Step(time.Minute) // exporters' Leases run out as well
		var fresh *page
		testkit.Eventually(t, time.Minute, "the client has the version of now", func(context.Context) (bool, string) {
			b.clock.Step(gap)
			fresh = b.fetched(t)
			mine.follow(t, b, events, fresh.version)
			// The informers may have more to come.
			return mine.version == fresh.version && len(b.watch.Snapshot().World.Pods) == b.pods(t) && cmp.Diff(fresh.workloads, mine.workloads) == "",
				fmt.Sprintf("client %d, fresh %d", mine.version, fresh.version)
		})
		for what, pair := range map[string][2]any{"nodes": {fresh.nodes, mine.nodes}, "supply": {fresh.supply, mine.supply}, "counts": {fresh.counts, mine.counts}} {
			if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
				t.Fatalf("round %d, %s (-fetched,+applied):\n%s", round, what, diff)
			}
		}
	}
}

func (e *testEnv) pods(t *testing.T) int {
	t.Helper()
	all, err := e.kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(all.Items)
}

// TestStreamRejoin: a client that cannot rejoin its stream fetches anew. Hello has another version
// than the one that was seen.
func TestStreamRejoin(t *testing.T) {
	b := newTestEnv(t, sample(t), nil)
	now := b.fetched(t)
	for name, id := range map[string]string{
		"nothing seen": "", "no number": "seventeen", "a version of an earlier server": "17", "a version of the future": strconv.FormatInt(now.version+1_000_000, 10),
		"the version of now": now.id,
	} {
		_, events := b.follow(t, map[string]string{"Last-Event-ID": id})
		if e := next(t, events); e.name != "hello" || !strings.Contains(e.data, `"version":`+now.id+",") {
			t.Errorf("%s: %+v, want hello with %s", name, e, now.id)
		}
	}
}

// TestEventIDs: events of one version keep the old ID until the last of them, so that a break
// between them loses nothing.
func TestEventIDs(t *testing.T) {
	text, _, err := frames([]event{{"nodes", 1}, {"workloads", 2}, {"gangs", 3}}, 7, 9)
	if err != nil {
		t.Fatal(err)
	}
	want := "id: 7\nevent: nodes\ndata: 1\n\nid: 7\nevent: workloads\ndata: 2\n\nid: 9\nevent: gangs\ndata: 3\n\n"
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("frames (-want,+got):\n%s", diff)
	}
}

// TestHeartbeat: a heartbeat comes in time though nothing changes.
func TestHeartbeat(t *testing.T) {
	b := newTestEnv(t, sample(t), nil)
	_, events := b.follow(t, nil)
	if e := next(t, events); e.name != "hello" {
		t.Fatalf("first %+v, want hello", e)
	}
	waitForTickers(t, b.clock)
	b.clock.Step(heartbeat + time.Second)
	if e := next(t, events); e.name != "" || e.data != "" {
		t.Errorf("%+v, want a comment", e)
	}
}

// TestStreamShutdown: streams end with the server, and say so.
func TestStreamShutdown(t *testing.T) {
	eachProtocol(t, "a stream", func(t *testing.T, over func(*testing.T, *testEnv) *connections) {
		t.Helper()
		b := newTestEnv(t, sample(t), nil)
		served := over(t, b)
		_, events := b.follow(t, nil)
		if e := next(t, events); e.name != "hello" {
			t.Fatalf("first %+v, want hello", e)
		}
		served.end()
		var names []string
		for e := range events {
			names = append(names, e.name+e.data)
		}
		if want := `bye{"reason":"the server ends"}`; !slices.Contains(names, want) {
			t.Errorf("events %q, want %s", names, want)
		}
	})
}
