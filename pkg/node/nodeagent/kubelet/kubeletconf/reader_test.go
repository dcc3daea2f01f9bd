// SPDX-License-Identifier: Apache-2.0

package kubeletconf

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// testEnv is a reader of a file with a root directory of its own.
type testEnv struct {
	*Reader
	file, root  string
	allocatable nvtopo.CPUSet
	unreachable error
	changes     []*v1alpha1.Kubelet
	node        atomic.Pointer[nodeAnswer]
}

// nodeAnswer is what the API server answers about the Node; without either it never answers.
type nodeAnswer struct {
	node *v1.Node
	err  error
}

func (e *testEnv) getNode(ctx context.Context) (*v1.Node, error) {
	a := e.node.Load()
	if a.node == nil && a.err == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return a.node, a.err
}

// nodeOf returns a Node with the version and, unless it is empty, the address of a kubelet.
func nodeOf(tb testing.TB, version, address string) *v1.Node {
	tb.Helper()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: testNode}, Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KubeletVersion: version}}}
	if address == "" {
		return n
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		tb.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		tb.Fatal(err)
	}
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: host}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	return n
}

func newTestEnv(t *testing.T, file string) *testEnv {
	t.Helper()
	b := &testEnv{file: filepath.Join(t.TempDir(), "config.yaml"), root: t.TempDir()}
	b.node.Store(&nodeAnswer{node: nodeOf(t, "v1.35.8", "")})
	if file != "" {
		write(t, b.file, file)
	}
	r, err := New(Config{
		Node: testNode, File: b.file, RootDir: b.root,
		GetNode:     b.getNode,
		Allocatable: func(context.Context) (nvtopo.CPUSet, error) { return b.allocatable, b.unreachable },
		Online:      func() (nvtopo.CPUSet, error) { return nvtopo.ParseCPUList("0-7") },
		Unaligned:   func() []string { return []string{"nvidia.com/gpu", "amd.com/gpu", "nvidia.com/gpu"} },
	}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	r.OnChange(func(k *v1alpha1.Kubelet) { b.changes = append(b.changes, k) })
	b.Reader = r
	return b
}

const staticFile = fileHead + "cpuManagerPolicy: static\nmemoryManagerPolicy: Static\nkubeReserved: {cpu: 1500m}\n"

// run starts the reader in a bubble and returns what ends it.
func (e *testEnv) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// TestManagerState: changes in the managers' state are followed.
func TestManagerState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestEnv(t, staticFile)
		b.allocatable, _ = nvtopo.ParseCPUList("1-3,5-7")
		writeCPUState(t, b.root, "0-7", nil)
		write(t, filepath.Join(b.root, memoryStateFile),
			`{"policyName":"Static","machineState":{"0":{"memoryMap":{"memory":{"allocatable":4096,"free":4096}},"cells":[0]}}}`)
		defer b.run(t)()
		synctest.Wait()
		got := b.Current()
		if got == nil || b.Problem() != nil {
			t.Fatalf("current %+v, problem %v", got, b.Problem())
		}
		if got.ReservedCPUs != "0,4" || got.ExclusiveCPUs != "" || len(got.Memory) != 1 {
			t.Errorf("reserved %q, exclusive %q, memory %v; want 0,4, none and one NUMA node", got.ReservedCPUs, got.ExclusiveCPUs, got.Memory)
		}
		if diff := cmp.Diff([]string{"amd.com/gpu", "nvidia.com/gpu"}, got.UnalignedResources); diff != "" {
			t.Errorf("unaligned resources (-want +got):\n%s", diff)
		}
		writeCPUState(t, b.root, "0,3-7", map[string]map[string]string{"uid": {"train": "1-2"}})
		time.Sleep(statePoll)
		synctest.Wait()
		if got := b.Current(); got.ExclusiveCPUs != "1-2" || b.CPUs("uid", "train") != "1-2" || b.CPUs("uid", "other") != "" {
			t.Errorf("exclusive %q, of the container %q and of another %q; want 1-2, 1-2 and none",
				got.ExclusiveCPUs, b.CPUs("uid", "train"), b.CPUs("uid", "other"))
		}
		time.Sleep(time.Hour)
		if len(b.changes) != 2 {
			t.Errorf("%d changes told, want 2: nothing changed since", len(b.changes))
		}
	})
}

// TestUnknownSettings: settings that are not known are left out and told.
func TestUnknownSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare  func(t *testing.T, b *testEnv)
		wantErr  string
		wantCPUs string // reserved
		// wantAccount: the problem is of the CPU manager's state, and is published.
		wantAccount bool
	}{
		"kubelet does not tell its CPUs": {
			prepare: func(t *testing.T, b *testEnv) {
				t.Helper()
				writeCPUState(t, b.root, "0-7", nil)
				b.unreachable = errors.New("connection refused")
			},
			wantErr: "reserved CPUs: connection refused",
		},
		"kubelet's CPUs do not add up to its configuration": {
			prepare: func(t *testing.T, b *testEnv) {
				t.Helper()
				writeCPUState(t, b.root, "0-7", nil)
				b.allocatable = nvtopo.NewCPUSet(1, 2, 3)
			},
			wantErr: "its configuration reserves 2",
		},
		"no state file": {
			prepare: func(_ *testing.T, b *testEnv) { b.allocatable, _ = nvtopo.ParseCPUList("2-7") },
			wantErr: "CPU manager state: open", wantCPUs: "0-1", wantAccount: true,
		},
		"a state file of another policy": {
			prepare: func(t *testing.T, b *testEnv) {
				t.Helper()
				b.allocatable, _ = nvtopo.ParseCPUList("2-7")
				write(t, filepath.Join(b.root, cpuStateFile), `{"policyName":"none"}`)
			},
			wantErr: `of policy "none"`, wantCPUs: "0-1", wantAccount: true,
		},
		"a state file with what this agent does not know": {
			prepare: func(t *testing.T, b *testEnv) {
				t.Helper()
				b.allocatable, _ = nvtopo.ParseCPUList("2-7")
				write(t, filepath.Join(b.root, cpuStateFile), `{"policyName":"static","\u001b[31m`+strings.Repeat("x", 300)+`":1}`)
			},
			wantErr: "unknown field", wantCPUs: "0-1", wantAccount: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestEnv(t, fileHead+"cpuManagerPolicy: static\nkubeReserved: {cpu: 1500m}\n")
			tc.prepare(t, b)
			_ = b.refresh(t.Context())
			checkErr(t, b.Problem(), tc.wantErr)
			got := b.Current()
			if got == nil || got.CPUManagerPolicy != CPUPolicyStatic || got.ReservedCPUs != tc.wantCPUs || got.ExclusiveCPUs != "" {
				t.Errorf("current %+v, want the policy, reserved CPUs %q and no exclusive ones", got, tc.wantCPUs)
			}
			problem := ""
			if tc.wantAccount {
				problem = v1alpha1.BoundedText(b.Problem().Error())
			}
			if got.ExclusiveCPUsProblem != problem || len(problem) > 256 {
				t.Errorf("problem of the exclusive CPUs %q, want %q", got.ExclusiveCPUsProblem, problem)
			}
		})
	}
}

// TestKubeletRestart: a restart of kubelet is noticed at once.
func TestKubeletRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestEnv(t, "")
		defer b.run(t)()
		synctest.Wait()
		if b.Current() != nil || b.Problem() == nil {
			t.Fatalf("current %+v, problem %v; want nothing known and a problem", b.Current(), b.Problem())
		}
		write(t, b.file, fileHead)
		time.Sleep(3 * firstRetry)
		synctest.Wait()
		if got := b.Current(); got == nil || got.CPUManagerPolicy != CPUPolicyNone || b.Problem() != nil {
			t.Fatalf("current %+v, problem %v; want the defaults soon after the file is there", got, b.Problem())
		}
		write(t, b.file, fileHead+"topologyManagerPolicy: restricted\n")
		b.Trigger()
		synctest.Wait()
		if got := b.Current(); got.TopologyManagerPolicy != "restricted" {
			t.Errorf("topologyManagerPolicy %q after a restart, want restricted", got.TopologyManagerPolicy)
		}
		// What kubelet runs with stays known while the source is gone.
		if err := os.Remove(b.file); err != nil {
			t.Fatal(err)
		}
		b.Trigger()
		synctest.Wait()
		if got := b.Current(); got == nil || got.TopologyManagerPolicy != "restricted" || b.Problem() == nil {
			t.Errorf("current %+v, problem %v; want the last reading and a problem", got, b.Problem())
		}
	})
}

// TestKubeletVersion: the version of the Node is published, also after kubelet was replaced by
// another and wrote the Node later than it read its configuration.
func TestKubeletVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestEnv(t, fileHead)
		defer b.run(t)()
		check := func(when, want, wantProblem string) {
			t.Helper()
			synctest.Wait()
			if got := b.Current(); got == nil || got.Version != want {
				t.Errorf("%s: current %+v, want version %q", when, got, want)
			}
			checkErr(t, b.Problem(), wantProblem)
		}
		check("at first", "v1.35.8", "")
		tell := func(a nodeAnswer) {
			b.node.Store(&a)
			b.Trigger()
		}
		b.Trigger()
		synctest.Wait()
		b.node.Store(&nodeAnswer{node: nodeOf(t, "v1.37.2-gke.100", "")})
		time.Sleep(nodeDelay)
		check("a minute after a restart", "v1.37.2-gke.100", "")
		tell(nodeAnswer{err: errors.New("no connection")})
		check("without the API server", "v1.37.2-gke.100", "no connection")
		for name, version := range map[string]string{
			"with a word in its place":       "latest",
			"with one that is too long":      "v1.37.3-" + strings.Repeat("x", maxVersion),
			"with a control character in it": "v1.37.3\x1b[2J",
		} {
			tell(nodeAnswer{node: nodeOf(t, version, "")})
			check(name, "v1.37.2-gke.100", "status.nodeInfo.kubeletVersion")
		}
		tell(nodeAnswer{})
		synctest.Wait()
		write(t, b.file, fileHead+"topologyManagerPolicy: restricted\n")
		time.Sleep(nodeTimeout)
		check("while the API server does not answer", "v1.37.2-gke.100", context.DeadlineExceeded.Error())
		time.Sleep(nodeTimeout + firstRetry)
		check("and the file changes", "v1.37.2-gke.100", context.DeadlineExceeded.Error())
		if got := b.Current().TopologyManagerPolicy; got != "restricted" {
			t.Errorf("topologyManagerPolicy %q, want the file's, restricted", got)
		}
	})
}

// TestNewErrors: New refuses settings that cannot work.
func TestNewErrors(t *testing.T) {
	getNode := func(context.Context) (*v1.Node, error) { return nodeOf(t, "v1.35.8", ""), nil }
	for name, cfg := range map[string]Config{
		"no node":                     {RootDir: "/x", File: "f", GetNode: getNode},
		"no root directory":           {Node: "n", File: "f", GetNode: getNode},
		"no way to read the Node":     {Node: "n", RootDir: "/x", File: "f"},
		"configz without credentials": {Node: "n", RootDir: "/x", GetNode: getNode},
	} {
		if _, err := New(cfg, clock.RealClock{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
