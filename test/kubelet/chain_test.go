// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

// registrySocket is the socket with which an inner plugin registers, instead of kubelet's.
const registrySocket = devicemanager.PluginDir + "/nvtopo/kubelet.sock"

// chainOptions describes a node; the zero value is the shipped default.
type chainOptions struct {
	kubelet  devicemanager.Options
	numa     int  // NUMA nodes that the inner plugin reports
	strict   bool // mode of the agent
	preStart bool
	strip    bool
	hold     time.Duration
	memory   bool     // no state directory
	innerDir string   // of the inner plugin's socket; "" means kubelet's, as NVIDIA's plugin has it
	extra    []string // resources beside nvidia.com/gpu, of 4 devices each
}

// chain is a node with all parts between the API server and the container: kubelet's device manager, our
// agent's interposer and steering, and an inner device plugin that is only told where to register.
type chain struct {
	*devicemanager.Manager
	t       *testing.T
	options chainOptions
	api     *apiServer
	inner   map[string]*devicemanager.Plugin // by resource
	agent   *agent
	state   string

	mu     sync.Mutex
	told   map[string]int                            // resource + sorted ids -> number of calls of an inner Allocate with exactly them
	during func(resource string, ids []string) error // called inside the inner Allocate
	prefer func(available, must []string, size int) ([]string, error)
}

// agent is one run of the node agent.
type agent struct {
	steering   *steering.Steering
	interposer *interposer.Interposer
	registry   *prometheus.Registry
	client     *kubelet.PodResources
	requests   atomic.Int64 // to PodResources, except those refused by kubelet's rate limit
	mu         sync.Mutex
	preferred  []int // requests for each answer to GetPreferredAllocation; guarded by mu
	cancel     context.CancelFunc
	done       chan error // of both
}

// graphs returns the tables of a machine in which the choice of devices matters.
type graphs struct{ tables *nvtopo.Tables }

func (g graphs) Tables(resource string) *nvtopo.Tables {
	if resource != gpu {
		return nil
	}
	return g.tables
}

// dgx1 returns the graph of a DGX-1, whose pairs of GPUs differ, with the ids G0 to G7.
func dgx1(tb testing.TB) *nvtopo.Graph {
	tb.Helper()
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		tb.Fatal(err)
	}
	g, err := m.Graph()
	if err != nil {
		tb.Fatal(err)
	}
	links := map[[2]int]nvtopo.Link{}
	gpus := slices.Clone(g.GPUs)
	for i := range gpus {
		gpus[i].UUID = ids(i)[0]
		for j := range i {
			links[[2]int{i, j}] = g.Link(i, j)
		}
	}
	named, err := nvtopo.NewGraph(gpus, g.NUMANodes, g.NICs, links)
	if err != nil {
		tb.Fatal(err)
	}
	return named
}

func startChain(t *testing.T, o chainOptions) *chain {
	t.Helper()
	c := &chain{
		Manager: devicemanager.Start(t, o.kubelet), t: t, options: o, api: newAPIServer(),
		inner: map[string]*devicemanager.Plugin{}, told: map[string]int{}, prefer: lowest,
	}
	if !o.memory {
		c.state = t.TempDir()
	}
	c.startAgent()
	t.Cleanup(func() { c.stopAgent() })
	c.addInner(gpu, devicemanager.Devices("G", 8, o.numa))
	for _, r := range o.extra {
		c.addInner(r, devicemanager.Devices("X", 4, o.numa))
	}
	c.waitReady()
	t.Cleanup(func() {
		if !t.Failed() && c.agent != nil {
			c.audit()
		}
	})
	return c
}

func (c *chain) addInner(resource string, devices []*pluginapi.Device) {
	c.inner[resource] = devicemanager.StartPlugin(c.t, devicemanager.PluginOptions{
		Resource: resource, Devices: devices,
		KubeletSocket: registrySocket, Dir: c.options.innerDir,
		Preferred: func(available, must []string, size int) ([]string, error) {
			c.mu.Lock()
			prefer := c.prefer
			c.mu.Unlock()
			return prefer(available, must, size)
		},
		Allocate: func(ids []string) error {
			c.mu.Lock()
			during := c.during
			c.mu.Unlock()
			if during != nil {
				if err := during(resource, ids); err != nil {
					return err
				}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.told[key(resource, ids)]++
			return nil
		},
	})
}

func key(resource string, ids []string) string {
	return resource + "=" + strings.Join(slices.Sorted(slices.Values(ids)), ",")
}

func (c *chain) restart(t *testing.T, how devicemanager.Restart) {
	t.Helper()
	if err := c.Restart(how); err != nil {
		t.Fatal(err)
	}
}

// waitReady waits until kubelet offers every device.
func (c *chain) waitReady() {
	c.t.Helper()
	c.WaitAllocatable(c.t, gpu, 8)
	for _, r := range c.options.extra {
		c.WaitAllocatable(c.t, r, 4)
	}
}

// startAgent starts a new run of the agent over the same state.
func (c *chain) startAgent() {
	c.t.Helper()
	a := &agent{registry: prometheus.NewRegistry(), done: make(chan error, 2)}
	var err error
	if a.client, err = kubelet.Dial(devicemanager.PodResourcesSocket); err != nil {
		c.t.Fatal(err)
	}
	clk := clock.RealClock{}
	tables := nvtopo.NewTables(dgx1(c.t), nvtopo.DefaultWeights())
	a.steering, err = steering.New(steering.Config{
		Node: thisNode, Strict: c.options.strict, StateDir: c.state,
		CheckpointPath: devicemanager.CheckpointFile, Registerer: a.registry,
	}, c.api, countedClient{a.client, &a.requests}, graphs{tables}, clk)
	if err != nil {
		c.t.Fatal(err)
	}
	a.interposer, err = interposer.New(interposer.Config{
		PluginDir: devicemanager.PluginDir, Hold: c.options.hold, PreStart: c.options.preStart || c.options.strict,
		StripNUMA: c.options.strip, Registerer: a.registry,
	}, countedSteering{a.steering, a}, clk)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	go func() { a.done <- a.interposer.Run(ctx) }()
	go func() { a.done <- a.steering.Run(ctx) }()
	c.agent = a
}

func (c *chain) stopAgent() {
	c.t.Helper()
	if c.agent == nil {
		return
	}
	c.agent.cancel()
	for range 2 {
		select {
		case err := <-c.agent.done:
			if err != nil {
				c.t.Errorf("the agent ended with %v", err)
			}
		case <-time.After(devicemanager.Patience):
			c.t.Error("the agent does not end with its context")
		}
	}
	_ = c.agent.client.Close()
	c.agent = nil
}

// restartAgent starts a new run of the agent when kubelet has handled the end of the old one. On a node
// that always holds: kubelet itself restarts the agent's container.
func (c *chain) restartAgent() {
	c.t.Helper()
	c.stopAgent()
	c.WaitDisconnected(c.t)
	c.startAgent()
}

// inside sets a function that runs inside the inner plugin's Allocate.
func (c *chain) inside(f func(resource string, ids []string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.during = f
}

// innerPrefers sets the inner plugin's preferred answer.
func (c *chain) innerPrefers(f func(available, must []string, size int) ([]string, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prefer = f
}

// bind gives a pod with its choice to the API server; a nil choice stands for a pod that another
// scheduler bound.
func (c *chain) bind(pod *v1.Pod, chosen choice) *v1.Pod {
	c.t.Helper()
	if chosen != nil {
		pod = annotate(c.t, pod, chosen)
	}
	return c.api.put(pod)
}

func (c *chain) mustAdmit(pods ...*v1.Pod) {
	c.t.Helper()
	for _, p := range pods {
		if refusal := c.Admit(p); refusal != nil {
			c.t.Fatalf("pod %s was refused: %v", p.Name, refusal)
		}
	}
}

// refuse admits a pod that must be refused and returns kubelet's message.
func (c *chain) refuse(pod *v1.Pod) string {
	c.t.Helper()
	refusal := c.Admit(pod)
	if refusal == nil {
		c.t.Fatalf("pod %s was admitted with %v", pod.Name, c.held(pod))
	}
	c.api.update(pod.UID, func(p *v1.Pod) { p.Status.Phase = v1.PodFailed })
	return refusal.Message
}

// end ends a pod: its containers, then its object.
func (c *chain) end(pod *v1.Pod) {
	c.Terminate(pod)
	c.api.remove(pod.UID)
	c.Remove(pod)
}

// run reports a pod's containers as started, as kubelet does to the API server.
func (c *chain) run(pod *v1.Pod) {
	c.api.update(pod.UID, func(p *v1.Pod) {
		p.Status.Phase = v1.PodRunning
		for _, k := range p.Spec.Containers {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{
				Name: k.Name, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
			})
		}
	})
}

// held returns kubelet's record of a pod: container -> ids.
func (c *chain) held(pod *v1.Pod) choice {
	c.t.Helper()
	out := choice{}
	for _, e := range c.Checkpoint(c.t) {
		if e.PodUID == pod.UID {
			out[e.Container] = append(out[e.Container], e.IDs...)
		}
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}

// all returns the distinct ids of a choice, sorted.
func (c choice) all() []string {
	var out []string
	for _, ids := range c {
		out = append(out, ids...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// mustHold checks that annotation, checkpoint, PodResources and environment of
// every container agree on the choice.
func (c *chain) mustHold(pod *v1.Pod, want choice) {
	c.t.Helper()
	diff(c.t, "checkpoint of "+pod.Name, want, c.held(pod))
	shown, err := patientGet(c.t, c.agent.client, pod)
	if err != nil {
		c.t.Errorf("PodResources of %s: %v", pod.Name, err)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		env, err := c.StartContainer(c.t.Context(), pod, name)
		if err != nil {
			c.t.Errorf("starting: %v", err)
			continue
		}
		diff(c.t, "environment of "+pod.Name+"/"+name, strings.Join(want[name], ","), env[devicemanager.VisibleEnv])
		if d, visible := shown[name]; visible {
			diff(c.t, "PodResources of "+pod.Name+"/"+name, want[name], d[gpu])
		}
	}
}

// patientGet queries kubelet until it is within the rate limit.
func patientGet(t *testing.T, client *kubelet.PodResources, pod *v1.Pod) (kubelet.Devices, error) {
	t.Helper()
	return kubelet.NewPatient(client, clock.RealClock{}).Get(t.Context(), pod.Namespace, pod.Name)
}

// audit checks the invariant: no device belongs to two live pods, and kubelet's record has nothing that
// the inner plugin was not told.
func (c *chain) audit() {
	c.t.Helper()
	if err := c.check(); err != nil {
		testkit.Violation(c.t, "%v", err)
	}
}

func (c *chain) check() error {
	if err := c.sameRecords(); err != nil {
		return err
	}
	live := map[types.UID]bool{}
	for _, p := range c.Live() {
		live[p.UID] = true
	}
	c.mu.Lock()
	told := maps.Clone(c.told)
	c.mu.Unlock()
	holder := map[string]types.UID{}
	for _, e := range c.Checkpoint(c.t) {
		if told[key(e.Resource, e.IDs)] == 0 {
			return fmt.Errorf("kubelet recorded %s for %s/%s, which no Allocate of the inner plugin was told", key(e.Resource, e.IDs), e.PodUID, e.Container)
		}
		if !live[e.PodUID] {
			continue
		}
		for _, id := range e.IDs {
			id = e.Resource + "/" + id
			if other, taken := holder[id]; taken && other != e.PodUID {
				return fmt.Errorf("%s belongs to two live pods, %s and %s", id, other, e.PodUID)
			}
			holder[id] = e.PodUID
		}
	}
	return nil
}

// sameRecords checks that the agent reads kubelet's checkpoint as kubelet does.
func (c *chain) sameRecords() error {
	entries, records, err := c.bothRead()
	if err != nil {
		return err
	}
	want, got := map[string][]string{}, map[string][]string{}
	for _, e := range entries {
		want[fmt.Sprint(e.PodUID, "/", e.Container, "/", e.Resource)] = e.IDs
	}
	for _, r := range records {
		got[fmt.Sprint(r.PodUID, "/", r.Container, "/", r.Resource)] = r.IDs
	}
	if d := cmp.Diff(want, got); d != "" {
		return fmt.Errorf("kubelet's checkpoint as kubelet (-) and the agent (+) read it:\n%s", d)
	}
	return nil
}

// bothRead reads kubelet's checkpoint as kubelet and as the agent does. Kubelet may replace the file
// between two reads, so the agent's read is used if it lies between two equal ones of kubelet's.
func (c *chain) bothRead() ([]devicemanager.Entry, []kubelet.Record, error) {
	before := c.Checkpoint(c.t)
	for {
		records, err := kubelet.ReadCheckpoint(devicemanager.CheckpointFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		after := c.Checkpoint(c.t)
		if cmp.Equal(before, after) {
			return after, records, nil
		}
		before = after
	}
}

// metric returns the value of one of the agent's counters since it started.
func (c *chain) metric(name string, labels ...string) float64 {
	c.t.Helper()
	return c.find(name, labels).GetCounter().GetValue()
}

func hasLabels(m *dto.Metric, want []string) bool {
	return !slices.ContainsFunc(want, func(value string) bool {
		return !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetValue() == value })
	})
}

// decisions returns the number of the agent's decisions with a result.
func (c *chain) decisions(result string) int {
	c.t.Helper()
	return int(c.metric("nvtopo_agent_decisions_total", result))
}
