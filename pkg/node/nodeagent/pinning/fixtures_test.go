// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	nrilog "github.com/containerd/nri/pkg/log"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const (
	testNode = "node-a"
	testPod  = types.UID("uid-a")
	gpus     = "nvidia.com/gpu"
)

// quiet drops what the runtime's side of the library logs.
type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Infof(context.Context, string, ...any)  {}
func (quiet) Warnf(context.Context, string, ...any)  {}
func (quiet) Errorf(context.Context, string, ...any) {}

// TestMain has the runtime wait for what a busy machine takes: by itself it drops a plugin that
// does not answer within two seconds.
func TestMain(m *testing.M) {
	nrilog.Set(quiet{})
	adaptation.SetPluginRegistrationTimeout(patience)
	adaptation.SetPluginRequestTimeout(patience)
	os.Exit(m.Run())
}

// machine has eight GPUs, GPU-0 to GPU-7, four on each of two NUMA nodes of eight
// CPUs and 64 GiB, and GPU-x, whose NUMA node is unknown.
func machine() *v1alpha1.NodeGPUTopology {
	t := &v1alpha1.NodeGPUTopology{}
	t.Spec.NUMANodes = []v1alpha1.NUMANode{{ID: 0, CPUs: "0-7"}, {ID: 1, CPUs: "8-15"}, {ID: 2}}
	for i := range 2 {
		t.Spec.NUMANodes[i].Memory = resource.NewQuantity(64<<30, resource.BinarySI)
	}
	for i := range int32(8) {
		t.Spec.GPUs = append(t.Spec.GPUs, v1alpha1.GPU{ID: "GPU-" + strconv.Itoa(int(i)), Index: i, NUMANode: i / 4})
	}
	t.Spec.GPUs = append(t.Spec.GPUs, v1alpha1.GPU{ID: "GPU-x", Index: 8, NUMANode: -1, Resource: gpus})
	return t
}

func cpus(tb testing.TB, list string) nvtopo.CPUSet {
	tb.Helper()
	set, err := nvtopo.ParseCPUList(list)
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// record is what kubelet gave to a container of the test's pod.
func record(container string, ids ...string) kubelet.Record {
	return kubelet.Record{PodUID: testPod, Container: container, Resource: gpus, IDs: ids}
}

// choice is the scheduler's for one container of the test's pod.
func choice(cpuset, container string, ids ...string) *allocation.Allocation {
	return &allocation.Allocation{
		Version: allocation.Version, Node: testNode, PodUID: testPod, CPUSet: cpuset,
		Containers: []allocation.Container{{Name: container, Resource: gpus, GPUs: ids}},
	}
}

// sysfs makes the files of a host with these CPUs and this memory.
func sysfs(tb testing.TB, online, memory string) string {
	tb.Helper()
	root := tb.TempDir()
	for file, text := range map[string]string{"devices/system/cpu/online": online, "devices/system/node/has_memory": memory} {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return root
}
