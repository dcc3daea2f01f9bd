// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/nvtopo/nvtopo/manifests"
)

// pluginSocket is where the plugin registers, as the manifests for NVIDIA's say.
const pluginSocket = "/var/lib/kubelet/device-plugins/nvtopo/kubelet.sock"

// builtAgent returns the node agent's DaemonSet as kustomize assembles the base
// with components.
func builtAgent(t *testing.T, components ...string) *appsv1.DaemonSet {
	t.Helper()
	var k strings.Builder
	k.WriteString("resources: [../base]\n")
	if len(components) > 0 {
		k.WriteString("components: [../components/" + strings.Join(components, ", ../components/") + "]\n")
	}
	files := filesys.MakeFsInMemory()
	if err := files.WriteFile("/m/overlay/kustomization.yaml", []byte(k.String())); err != nil {
		t.Fatal(err)
	}
	err := fs.WalkDir(manifests.FS, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := manifests.FS.ReadFile(name)
		if err != nil {
			return err
		}
		return files.WriteFile("/m/"+name, data)
	})
	if err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/m/overlay")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range built.Resources() {
		if r.GetKind() != "DaemonSet" || r.GetName() != "nvtopo-node-agent" {
			continue
		}
		var d appsv1.DaemonSet
		if err := yaml.UnmarshalStrict([]byte(r.MustYaml()), &d); err != nil {
			t.Fatal(err)
		}
		return &d
	}
	t.Fatal("there is no node agent")
	return nil
}

// TestNodeAgentAccess: the node agent gets what it needs. It lists each thing of the node that an
// agent can touch: a new one has to be added here, and explained in docs/node-agent.md.
func TestNodeAgentAccess(t *testing.T) {
	base := []string{"/var/lib/kubelet/device-plugins rw", "/var/lib/kubelet/pod-resources ro", "/var/lib/nvtopo rw"}
	tests := map[string]struct {
		components []string
		wantArgs   []string
		wantMounts []string
	}{
		"as shipped":           {nil, []string{"--mode=repair"}, base},
		"strict":               {[]string{"strict"}, []string{"--mode=strict"}, base},
		"with pinning":         {[]string{"pinning"}, []string{"--mode=repair", "--nri=pin"}, append(slices.Clone(base), "/var/run/nri ro")},
		"strict, with pinning": {[]string{"strict", "pinning"}, []string{"--mode=strict", "--nri=pin"}, append(slices.Clone(base), "/var/run/nri ro")},
		"a kubelet with a certificate of its own": {
			[]string{"kubelet-certificate"}, []string{"--mode=repair"}, append(slices.Clone(base), "/var/lib/kubelet/pki/kubelet.crt ro"),
		},
		// First, for what lies below is mounted over it.
		"a kubelet that pins": {[]string{"kubelet-files"}, []string{"--mode=repair"}, append([]string{"/var/lib/kubelet ro"}, base...)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := builtAgent(t, tc.components...)
			spec := d.Spec.Template.Spec
			c := &spec.Containers[0]
			if diff := cmp.Diff(tc.wantArgs, c.Args); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			volumes := map[string]string{} // volume name -> path on the node
			for _, v := range spec.Volumes {
				if v.HostPath == nil {
					t.Errorf("volume %s is not of the node", v.Name)
					continue
				}
				volumes[v.Name] = v.HostPath.Path
			}
			var mounts []string
			for _, m := range c.VolumeMounts {
				access := " rw"
				if m.ReadOnly {
					access = " ro"
				}
				mounts = append(mounts, volumes[m.Name]+access)
				if m.MountPath != volumes[m.Name] {
					t.Errorf("%s of the node is at %s in the container; kubelet and the plugins know the sockets by the node's paths", volumes[m.Name], m.MountPath)
				}
			}
			if diff := cmp.Diff(tc.wantMounts, mounts); diff != "" {
				t.Errorf("of the node (-want +got):\n%s", diff)
			}
			if !confined(&spec) || *c.SecurityContext.RunAsUser != 0 {
				t.Error("the container is not a root without capabilities")
			}
			rolling := d.Spec.UpdateStrategy.RollingUpdate
			if rolling == nil || rolling.MaxUnavailable.IntValue() != 1 || rolling.MaxSurge.IntValue() != 0 {
				t.Errorf("nodes are updated by %+v, want one after the other and never two agents on one", d.Spec.UpdateStrategy)
			}
			if spec.PriorityClassName != "system-node-critical" || len(spec.Tolerations) != 1 || spec.Tolerations[0].Operator != v1.TolerationOpExists {
				t.Errorf("priority class %q, tolerations %v", spec.PriorityClassName, spec.Tolerations)
			}
			if len(c.Resources.Requests) != 2 || !c.Resources.Limits.Cpu().IsZero() {
				t.Errorf("resources %v: it must not be best-effort, nor throttled inside kubelet's admission", c.Resources)
			}
		})
	}
}

// TestSameNodes: the exporter and the agent run on the same nodes. A node with one but not the
// other is not enforced, or has no graph.
func TestSameNodes(t *testing.T) {
	selectors := map[string]map[string]string{}
	for _, list := range objects(t) {
		for _, obj := range list {
			if d, ok := obj.(*appsv1.DaemonSet); ok {
				selectors[d.Name] = d.Spec.Template.Spec.NodeSelector
			}
		}
	}
	if diff := cmp.Diff(selectors["nvtopo-exporter"], selectors["nvtopo-node-agent"]); diff != "" || len(selectors) != 2 {
		t.Errorf("node selectors (-exporter +agent) of %d DaemonSets:\n%s", len(selectors), diff)
	}
}

// TestStockPluginPatch: the stock plugin finds the agent. It applies the patches to NVIDIA's
// DaemonSet as kubectl does. The fields of testdata/nvidia-device-plugin.yaml are those of
// deployments/static/nvidia-device-plugin.yml of k8s-device-plugin 0.17.1.
func TestStockPluginPatch(t *testing.T) {
	tests := map[string]struct {
		patch      string
		wantSocket string
		wantFolder string
	}{
		"a plugin that can be told where kubelet is": {"device-plugin-patch.yaml", pluginSocket, "/var/lib/kubelet/device-plugins"},
		"an older one": {"device-plugin-before-0.17-patch.yaml", "", "/var/lib/kubelet/device-plugins/nvtopo"},
	}
	stock, err := os.ReadFile(filepath.Join("testdata", "nvidia-device-plugin.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if stock, err = yaml.YAMLToJSONStrict(stock); err != nil {
		t.Fatal(err)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			patch, err := os.ReadFile(filepath.Join("nvidia", tc.patch))
			if err != nil {
				t.Fatal(err)
			}
			if patch, err = yaml.YAMLToJSONStrict(patch); err != nil {
				t.Fatal(err)
			}
			patched, err := strategicpatch.StrategicMergePatch(stock, patch, appsv1.DaemonSet{})
			if err != nil {
				t.Fatal(err)
			}
			var d appsv1.DaemonSet
			if err := yaml.UnmarshalStrict(patched, &d); err != nil {
				t.Fatal(err)
			}
			spec := d.Spec.Template.Spec
			if len(spec.Containers) != 1 || len(spec.Volumes) != 1 || len(spec.Containers[0].VolumeMounts) != 1 || spec.Containers[0].Image == "" {
				t.Fatalf("the patch added instead of changing:\n%s", patched)
			}
			env := map[string]string{}
			for _, e := range spec.Containers[0].Env {
				env[e.Name] = e.Value
			}
			if env["KUBELET_SOCKET"] != tc.wantSocket || env["FAIL_ON_INIT_ERROR"] != "false" {
				t.Errorf("environment %v, want KUBELET_SOCKET %q and the rest as it was", env, tc.wantSocket)
			}
			if got := spec.Volumes[0].HostPath.Path; got != tc.wantFolder {
				t.Errorf("the plugin sees %s of the node, want %s", got, tc.wantFolder)
			}
			if got := spec.Containers[0].VolumeMounts[0].MountPath; got != "/var/lib/kubelet/device-plugins" {
				t.Errorf("the plugin sees kubelet's folder at %s", got)
			}
		})
	}
}

// TestChartSocketValues: the chart values name the agent's socket. Values of charts are checked
// against nothing else, so that a slip of the pen would leave the plugin with kubelet.
func TestChartSocketValues(t *testing.T) {
	type env []v1.EnvVar
	var operator struct {
		DevicePlugin struct {
			Env env `json:"env"`
		} `json:"devicePlugin"`
		Validator struct {
			Plugin struct {
				Env env `json:"env"`
			} `json:"plugin"`
		} `json:"validator"`
	}
	var chart struct {
		DevicePlugin struct {
			Containers struct {
				Main struct {
					Env env `json:"env"`
				} `json:"main"`
			} `json:"containers"`
		} `json:"devicePlugin"`
	}
	for file, into := range map[string]any{"gpu-operator-values.yaml": &operator, "device-plugin-chart-values.yaml": &chart} {
		data, err := os.ReadFile(filepath.Join("nvidia", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(data, into); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	want := v1.EnvVar{Name: "KUBELET_SOCKET", Value: pluginSocket}
	for name, got := range map[string]env{"the operator's": operator.DevicePlugin.Env, "the chart's": chart.DevicePlugin.Containers.Main.Env} {
		if !slices.Contains(got, want) {
			t.Errorf("%s environment is %v, want %v in it", name, got, want)
		}
	}
	if got := operator.Validator.Plugin.Env; len(got) != 1 || got[0].Name != "WITH_WORKLOAD" || got[0].Value != "false" {
		t.Errorf("the operator's validator: %v", got)
	}
	docs, err := os.ReadFile(filepath.Join("..", "docs", "node-agent.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{pluginSocket, "manifests/nvidia/device-plugin-patch.yaml", "manifests/nvidia/gpu-operator-values.yaml"} {
		if !strings.Contains(string(docs), want) {
			t.Errorf("docs/node-agent.md does not mention %s", want)
		}
	}
}
