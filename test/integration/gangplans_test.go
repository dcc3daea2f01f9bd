// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	gangLabel = "example.com/gang"

	// plansVariable and planSeedVariable name the variables with the number of compared gangs, and the seed.
	plansVariable, planSeedVariable = "NVTOPO_GANG_PLANS", "NVTOPO_GANG_SEED"
	// machinesVariable names the variable with the kinds of machine of the fleet, such as
	// "dgx2,hgx-h200,l40s-8".
	machinesVariable = "NVTOPO_MACHINES"
	// plansInShort is the number in make test.
	plansInShort = 40
	// tooMany GPUs are more than any node has.
	tooMany = 17
	// plannedLoad is the share of GPUs in use once a gang is placed.
	plannedLoad = 0.9
)

// plannedMachines are distributed to 64 nodes in 8 racks behind 2 spines, unless others are named.
func plannedMachines() []string {
	if named := os.Getenv(machinesVariable); named != "" {
		return strings.Split(named, ",")
	}
	return []string{"dgx-h100", "dgx1-v100", "hgx-a100-8", "v100-pcie-8", "a6000-8-bridged", "dgx2", "hgx-a100-4"}
}

// TestSchedulerPlannerParity checks that the scheduler places as the planner does: with patience 0, and
// one change at a time, each member of each gang has the node and the devices that the planner gives its
// rank.
func TestSchedulerPlannerParity(t *testing.T) {
	gangs, seed := numberOf(t, plansVariable, plansInShort), numberOf(t, planSeedVariable, 1)
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	l.makePlannedNodes(t)
	l.startScheduler(t, profile{
		name: gangProfile, write: "Binding", plugins: []string{gangPlugin, topologyPlugin, numaPlugin}, binders: []string{topologyPlugin, "DefaultBinder"},
	})
	x := &comparison{testEnv: l, random: rand.New(rand.NewPCG(uint64(seed), 16)), outside: l.planner(t)}
	for node := range x.outside.tables {
		x.capacity += x.outside.tables[node].Graph().Len()
	}
	for x.inUse < int(plannedLoad*float64(x.capacity)) {
		x.single(t)
	}
	x.settle(t)
	equal := 0
	for i := range gangs {
		if x.compare(t, x.gang(i)) {
			equal++
		}
	}
	t.Logf("%v: %d of %d gangs are placed as planned, %d of them across racks, %d where another model had room", plannedMachines(), equal, gangs, x.across, x.chosen)
	if equal < gangs {
		t.Errorf("%d of %d gangs are placed as planned, want all", equal, gangs)
	}
}

func numberOf(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: want a number above 0", variable, text)
	}
	return n
}

func (e *testEnv) makePlannedNodes(t *testing.T) {
	t.Helper()
	var nodes []devcluster.NodeSpec
	machines := plannedMachines()
	for i := range 64 {
		nodes = append(nodes, devcluster.NodeSpec{
			Name: fmt.Sprintf("node-%02d", i), Machine: machines[i%len(machines)],
			Labels: map[string]string{spineLabel: fmt.Sprintf("spine-%d", i/32), rackLabel: fmt.Sprintf("rack-%d", i/8)},
		})
	}
	var g errgroup.Group
	g.SetLimit(8)
	for _, spec := range nodes {
		g.Go(func() error { _, err := e.AddNode(t.Context(), spec); return err })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	e.publish(t, devcluster.ExporterOptions{}, nodes...)
}

// comparison is a working cluster with the planner's results for it.
type comparison struct {
	*testEnv
	outside  *outside
	random   *rand.Rand
	capacity int    // GPUs
	inUse    int    // of them
	units    []unit // running single pods and gangs
	singles  int    // created so far
	probes   int    // created so far
	across   int    // gangs in more than one rack
	chosen   int    // gangs that had room on several models
}

// unit is a set of pods that end together.
type unit struct {
	pods []string
	gpus int
}

// single creates a pod that is no member.
func (x *comparison) single(t *testing.T) {
	t.Helper()
	name, gpus := fmt.Sprintf("single-%d", x.singles), []int{1, 1, 2, 2, 4}[x.random.IntN(5)]
	x.singles++
	x.create(t, gpuPod(name, gangProfile, gpus).Obj())
	x.add(unit{pods: []string{name}, gpus: gpus})
}

func (x *comparison) add(u unit) {
	x.units = append(x.units, u)
	x.inUse += u.gpus
}

// gang returns the next random gang that fits into the empty cluster: a rack has one or two machines of a
// model.
func (x *comparison) gang(number int) *trialGang {
	for {
		g := x.drawn(number)
		if _, err := x.outside.plan(g, make([]nvtopo.Mask, x.outside.tree.Len())); err == nil {
			return g
		}
	}
}

// drawn returns a random gang: most have no other requirement than to be near each other.
func (x *comparison) drawn(number int) *trialGang {
	g := &trialGang{
		name: fmt.Sprintf("g%d", number), pods: 2 * (1 + x.random.IntN(4)),
		gpus: []int{8, 8, 4, 4, 4, 2, 2, 1}[x.random.IntN(8)], notes: notes{},
	}
	switch x.random.IntN(12) {
	case 0:
		g.notes[gangrequest.RequiredKey], g.wishes.Required = "rack", "rack"
	case 1:
		g.notes[gangrequest.RequiredKey], g.wishes.Required = "spine", "spine"
	case 2:
		g.notes[gangrequest.StrategyKey], g.wishes.Strategy = "compute-heavy", fabric.StrategyComputeHeavy
	case 3:
		g.notes[gangrequest.SegmentSizeKey], g.notes[gangrequest.PreferredSegmentKey] = "2", "rack"
		g.wishes.SegmentSize, g.wishes.SegmentLevel = 2, "rack"
	case 4:
		g.notes[gangrequest.StrategyKey], g.notes[gangrequest.PatienceKey] = "communication-heavy", "0s"
		g.wishes.Strategy = fabric.StrategyCommunicationHeavy
	case 5:
		g.notes[podrequest.MessageSizeKey], g.wishes.MessageBytes = "64k", 64_000
	case 6:
		g.notes[gangrequest.MixedModelsKey], g.mixed = "true", true
	}
	return g
}

// settle waits until all single pods are bound, and the scheduler has received all ended pods.
func (x *comparison) settle(t *testing.T) {
	t.Helper()
	for _, u := range x.units {
		if len(u.pods) == 1 {
			x.bound(t, u.pods[0])
		}
	}
	x.heard(t)
}

// heard waits until the scheduler has received every pod that was created or deleted so far. It receives
// pods in order, so it has once it refuses a pod that was created after them.
func (x *comparison) heard(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("probe-%d", x.probes)
	x.probes++
	x.create(t, gpuPod(name, gangProfile, tooMany).Obj())
	x.refused(t, name)
	x.remove(t, name)
}

// makeRoom ends pods at random until there is room, for the planner too, and returns its plan.
func (x *comparison) makeRoom(t *testing.T, g *trialGang) *fabric.Plan {
	t.Helper()
	for {
		for x.inUse+g.pods*g.gpus > int(plannedLoad*float64(x.capacity)) {
			x.end(t)
		}
		plan, err := x.outside.plan(g, x.outside.used(t))
		var room *fabric.UnplaceableError
		switch {
		case err == nil:
			x.heard(t)
			return plan
		case !errors.As(err, &room) || len(x.units) == 0:
			t.Fatalf("%v: %v", g, err)
		}
		x.end(t)
	}
}

// end ends a unit; the scheduler may not know yet.
func (x *comparison) end(t *testing.T) {
	t.Helper()
	i := x.random.IntN(len(x.units))
	for _, name := range x.units[i].pods {
		if err := x.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	x.inUse -= x.units[i].gpus
	x.units = slices.Delete(x.units, i, i+1)
}

// compare has both place a gang, and reports whether they agree.
func (x *comparison) compare(t *testing.T, g *trialGang) bool {
	t.Helper()
	plan := x.makeRoom(t, g)
	u := unit{gpus: g.pods * g.gpus}
	var creates errgroup.Group
	for i := range g.pods {
		n := notes{gangrequest.GangKey: g.name, gangrequest.GangSizeKey: strconv.Itoa(g.pods)}
		maps.Copy(n, g.notes)
		pod := gpuPod(fmt.Sprintf("%s-%d", g.name, i), gangProfile, g.gpus).Annotations(n).Label(gangLabel, g.name).Obj()
		u.pods = append(u.pods, pod.Name)
		creates.Go(func() error {
			_, err := x.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{})
			return err
		})
	}
	if err := creates.Wait(); err != nil {
		t.Fatal(err)
	}
	x.add(u)
	got, want := x.outside.placed(t, g), x.outside.seats(plan)
	if len(plan.Domains[x.outside.tree.Depth()]) > 1 {
		x.across++
	}
	if len(plan.Others) > 0 {
		x.chosen++
	}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Logf("%v is not where the planner has it, level %s, band %d (-planner +scheduler):\n%s", g, plan.Level, plan.Band, diff)
	}
	return diff == ""
}
