// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

const (
	deployment = "Deployment nvtopo-system/nvtopo-scheduler"
	exporter   = "DaemonSet nvtopo-system/nvtopo-exporter"
	agent      = "DaemonSet nvtopo-system/nvtopo-node-agent"
	controller = "Deployment nvtopo-system/nvtopo-pool-controller"
	check      = "Pod nvtopo-system/nvtopo-test"

	pod       = "spec/template/spec/"
	container = pod + "containers/0/"

	// exported are values with every option of an export of invoices.
	exported = `{pools: {enabled: true, usageStorageLimit: 4Gi, extraArgs: [--v=4], export: {
		volume: {persistentVolumeClaim: {claimName: bills}}, command: "aws s3 cp {} s3://bills/",
		env: [{name: AWS_REGION, value: eu}], envFrom: [{secretRef: {name: bills}}]}}}`
)

// TestValues checks the fields that values change. Effects of the values in same are compared with the
// manifests.
func TestValues(t *testing.T) {
	tests := map[string]struct {
		values string
		object string
		field  string
		want   any
	}{
		"a registry and a tag":         {"{image: {registry: r.example.com/gpu/, tag: v1.2.3}}", exporter, container + "image", "r.example.com/gpu/nvtopo-exporter:v1.2.3"},
		"a registry of pools":          {"{pools: {enabled: true}, image: {registry: r}}", controller, container + "image", "r/nvtopo-pool-controller:dev"},
		"the test's image":             {"{image: {registry: r}}", check, "spec/containers/0/image", "r/nvtopo:dev"},
		"a whole reference":            {"{image: {registry: r}, nodeAgent: {image: 'other/agent@sha256:1234'}}", agent, container + "image", "other/agent@sha256:1234"},
		"how images are pulled":        {"{image: {pullPolicy: Never}}", deployment, container + "imagePullPolicy", "Never"},
		"credentials of the registry":  {"{image: {pullSecrets: [{name: s}]}}", deployment, pod + "imagePullSecrets", []any{map[string]any{"name": "s"}}},
		"replicas":                     {"{scheduler: {replicas: 3}}", deployment, "spec/replicas", 3.0},
		"a configuration of one's own": {"{scheduler: {config: 'kind: KubeSchedulerConfiguration'}}", deployment, container + "args", []any{"--config=/etc/nvtopo/config.yaml", "--disable-http2-serving"}},
		"a profile and a configuration of one's own": {
			"{scheduler: {profile: Binding, config: \"a:\\n  b\"}}", "ConfigMap nvtopo-system/nvtopo-scheduler-config", "data", map[string]any{"config.yaml": "a:\n  b\n"},
		},
		"flags of the scheduler": {"{scheduler: {extraArgs: [--v=4]}}", deployment, container + "args/2", "--v=4"},
		"flags of the scheduler and a configuration that are checked before it starts": {
			"{scheduler: {config: 'kind: KubeSchedulerConfiguration', extraArgs: [--v=4]}}", deployment, pod + "initContainers/0/args",
			[]any{"--config=/etc/nvtopo/config.yaml", "--disable-http2-serving", "--check-config", "--v=4"},
		},
		"what checks them is the program itself":  {"{image: {tag: v1}, scheduler: {image: r/own:1}}", deployment, pod + "initContainers/0/image", "r/own:1"},
		"a shipped configuration that is checked": {"{scheduler: {profile: Binding}}", deployment, pod + "initContainers/0/args/0", "--config=/etc/nvtopo/scheduler-config-binding.yaml"},
		"flags of the exporter":                   {"{exporter: {source: 'machine:dgx-h100', extraArgs: [--v=4]}}", exporter, container + "args", []any{"--source=machine:dgx-h100", "--v=4"}},
		"flags of the agent that pins":            {"{nodeAgent: {pinning: true, extraArgs: [--v=4]}}", agent, container + "args", []any{"--mode=repair", "--nri=pin", "--v=4"}},
		"flags of the pool controller":            {"{pools: {enabled: true, extraArgs: [--v=4]}}", controller, container + "args", []any{"--v=4"}},
		"an export and a limit and flags": {
			exported, controller, container + "args",
			[]any{"--export-dir=/export", "--export-command=aws s3 cp {} s3://bills/", "--usage-storage-limit=4Gi", "--v=4"},
		},
		"the volume of an export": {
			exported, controller, pod + "volumes", []any{map[string]any{"name": "export", "persistentVolumeClaim": map[string]any{"claimName": "bills"}}},
		},
		"where it is mounted":          {exported, controller, container + "volumeMounts", []any{map[string]any{"name": "export", "mountPath": "/export"}}},
		"who may write there":          {exported, controller, pod + "securityContext/fsGroup", 65532.0},
		"the environment of a program": {exported, controller, container + "env", []any{map[string]any{"name": "HOME", "value": "/export"}, map[string]any{"name": "AWS_REGION", "value": "eu"}}},
		"its credentials":              {exported, controller, container + "envFrom", []any{map[string]any{"secretRef": map[string]any{"name": "bills"}}}},
		"an export without a program":  {"{pools: {enabled: true, export: {volume: {emptyDir: {}}}}}", controller, container + "args", []any{"--export-dir=/export"}},
		"no export and no volume":      {"{pools: {enabled: true}}", controller, pod + "volumes", nil},
		"a limit by itself":            {"{pools: {enabled: true, usageStorageLimit: '0'}}", controller, container + "args", []any{"--usage-storage-limit=0"}},
		"flags of the web view": {
			"{ui: {enabled: true, extraArgs: [--v=4]}}", "Deployment nvtopo-system/nvtopo-ui", container + "args", []any{"ui", "--address=:8443", "--require-token", "--v=4"},
		},
		"no runtime class": {"{exporter: {runtimeClassName: ''}}", exporter, pod + "runtimeClassName", nil},
		"a selector beside the default": {
			"{exporter: {nodeSelector: {pool: gpu}}}", exporter, pod + "nodeSelector", map[string]any{"nvidia.com/gpu.present": "true", "pool": "gpu"},
		},
		"a selector in place of the default": {
			"{nodeAgent: {nodeSelector: {nvidia.com/gpu.present: null, pool: gpu}}}", agent, pod + "nodeSelector", map[string]any{"pool": "gpu"},
		},
		"a selector of the scheduler": {"{scheduler: {nodeSelector: {a: b}}}", deployment, pod + "nodeSelector", map[string]any{"a": "b"}},
		"no tolerations":              {"{nodeAgent: {tolerations: []}}", agent, pod + "tolerations", nil},
		"tolerations of pools":        {"{pools: {enabled: true, tolerations: [{key: a, operator: Exists}]}}", controller, pod + "tolerations", []any{map[string]any{"key": "a", "operator": "Exists"}}},
		"resources":                   {"{exporter: {resources: {limits: {memory: 1Gi}}}}", exporter, container + "resources/limits", map[string]any{"memory": "1Gi"}},
		"annotations of the agent": {
			"{nodeAgent: {podAnnotations: {a: b}}}", agent, "spec/template/metadata/annotations", map[string]any{"a": "b", "kubectl.kubernetes.io/default-container": "agent"},
		},
		"who may read metrics": {
			"{networkPolicy: {from: [{ipBlock: {cidr: 10.0.0.0/8}}]}}", "NetworkPolicy nvtopo-system/nvtopo-metrics", "spec/ingress/0/from",
			[]any{map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.0/8"}}},
		},
		"who may read the pool controller's": {
			"{pools: {enabled: true}, networkPolicy: {from: [{podSelector: {}}]}}", "NetworkPolicy nvtopo-system/nvtopo-pool-controller", "spec/ingress/0/from",
			[]any{map[string]any{"podSelector": map[string]any{}}},
		},
		"annotations of the exporter": {"{exporter: {podAnnotations: {a: b}}}", exporter, "spec/template/metadata/annotations", map[string]any{"a": "b"}},
		"annotations of the scheduler": {
			"{scheduler: {podAnnotations: {a: b}}}", deployment, "spec/template/metadata/annotations/a", "b",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := render(t, tc.values)[tc.object]
			if o == nil {
				t.Fatalf("there is no %s", tc.object)
			}
			if diff := cmp.Diff(tc.want, field(t, o, tc.field)); diff != "" {
				t.Errorf("%s of %s (-want +got):\n%s", tc.field, tc.object, diff)
			}
		})
	}
}

// TestSwitches checks that all objects of a part that is switched off are gone.
func TestSwitches(t *testing.T) {
	all := render(t, "{pools: {enabled: true}, monitoring: {enabled: true}}")
	tests := map[string]struct {
		values string
		gone   func(kind, name string) bool
	}{
		"definitions": {"{crds: {enabled: false}}", func(kind, _ string) bool { return kind == "CustomResourceDefinition" }},
		"policies":    {"{policies: {enabled: false}}", func(kind, _ string) bool { return strings.HasPrefix(kind, "ValidatingAdmissionPolicy") }},
		"flow control": {"{flowControl: {enabled: false}}", func(kind, _ string) bool {
			return kind == "FlowSchema" || kind == "PriorityLevelConfiguration"
		}},
		"network policies": {"{networkPolicy: {enabled: false}}", func(kind, _ string) bool { return kind == "NetworkPolicy" }},
		"the test":         {"{test: {enabled: false}}", func(_, name string) bool { return name == "nvtopo-test" }},
		"the scheduler": {"{scheduler: {enabled: false}}", func(kind, name string) bool {
			return strings.HasPrefix(name, "nvtopo-scheduler") && kind != "Service" && kind != "FlowSchema" || name == "nvtopo-what-if"
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			some := render(t, "{pools: {enabled: true}, monitoring: {enabled: true}, "+strings.TrimPrefix(tc.values, "{"))
			for k, o := range all {
				if gone := some[k] == nil; gone != tc.gone(o.GetKind(), o.GetName()) {
					t.Errorf("%s is gone: %t", k, gone)
				}
			}
		})
	}
}

// TestWrongValues checks that wrong values are refused with the name of the value and the allowed values.
func TestWrongValues(t *testing.T) {
	tests := map[string]struct{ values, want string }{
		"a name that is none":         {"{exporter: {sauce: nvml}}", "at '/exporter': additional properties 'sauce' not allowed"},
		"a part that is none":         {"{agent: {mode: strict}}", "additional properties 'agent' not allowed"},
		"a mode that is none":         {"{nodeAgent: {mode: lenient}}", "at '/nodeAgent/mode': value must be one of 'repair', 'strict'"},
		"a profile that is none":      {"{scheduler: {profile: Prebind}}", "at '/scheduler/profile': value must be one of 'PreBind', 'Binding', 'DefaultScheduler'"},
		"text for a number":           {"{scheduler: {replicas: two}}", "at '/scheduler/replicas': got string, want integer"},
		"text for a switch":           {"{pools: {enabled: 'yes'}}", "at '/pools/enabled': got string, want boolean"},
		"a source that is none":       {"{exporter: {source: smi}}", "at '/exporter/source': 'smi' does not match pattern"},
		"a flag without hyphens":      {"{nodeAgent: {extraArgs: [v=4]}}", "at '/nodeAgent/extraArgs/0': 'v=4' does not match pattern"},
		"a quantity that is none":     {"{scheduler: {resources: {requests: {cpu: much}}}}", "at '/scheduler/resources/requests/cpu': 'much' does not match pattern"},
		"a toleration that is none":   {"{exporter: {tolerations: [{operator: exists}]}}", "at '/exporter/tolerations/0/operator': value must be one of 'Exists', 'Equal'"},
		"nobody who may connect":      {"{networkPolicy: {from: []}}", "at '/networkPolicy/from': minItems: got 0, want 1"},
		"a program that gets no file": {"{pools: {export: {volume: {emptyDir: {}}, command: sync}}}", "at '/pools/export/command': 'sync' does not match pattern"},
		"a program without a volume":  {"{pools: {export: {command: 'sync {}'}}}", "at '/pools/export/volume': minProperties: got 0, want 1"},
		"a limit that is none":        {"{pools: {usageStorageLimit: much}}", "at '/pools/usageStorageLimit': 'much' does not match pattern"},
		"a tag with a digest":         {"{image: {tag: 'v1@sha256:12'}}", "at '/image/tag': 'v1@sha256:12' does not match pattern"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, complaints, err := helm(t, "template", "nvtopo", folder(), "--values", values(t, tc.values))
			if err == nil || !strings.Contains(string(complaints), tc.want) {
				t.Errorf("%v\n%s\nwant %q", err, complaints, tc.want)
			}
		})
	}
	_, complaints, err := helm(t, "template", "nvtopo", folder(), "--namespace", "gpu")
	if want := `the namespace is "gpu": nvtopo runs in nvtopo-system`; err == nil || !strings.Contains(string(complaints), want) {
		t.Errorf("another namespace: %v\n%s\nwant %q", err, complaints, want)
	}
}

// TestLint runs Helm's lint on the chart; a hint is an error.
func TestLint(t *testing.T) {
	for _, text := range []string{"", "{pools: {enabled: true}, monitoring: {enabled: true}, nodeAgent: {pinning: true}}"} {
		out, complaints, err := helm(t, "lint", "--strict", folder(), "--values", values(t, text))
		if err != nil || len(complaints) > 0 {
			t.Errorf("%v\n%s%s", err, out, complaints)
		}
	}
}

// TestValueSchema checks that every value is in the schema and every property of the schema in
// values.yaml: Helm refuses values outside the schema, and users would not find those that values.yaml
// does not show.
func TestValueSchema(t *testing.T) {
	var shown map[string]any
	read(t, "values.yaml", func(text []byte) error { return yaml.UnmarshalStrict(text, &shown) })
	type object struct {
		Properties map[string]*object
	}
	var schema object
	read(t, "values.schema.json", func(text []byte) error { return json.Unmarshal(text, &schema) })
	delete(schema.Properties, "global") // Helm's own
	var known, documented []string
	for part, o := range schema.Properties {
		for name := range o.Properties {
			known = append(known, part+"."+name)
		}
	}
	for part, v := range shown {
		for name := range v.(map[string]any) {
			documented = append(documented, part+"."+name)
		}
	}
	slices.Sort(known)
	slices.Sort(documented)
	if diff := cmp.Diff(known, documented); diff != "" {
		t.Errorf("(-values.schema.json +values.yaml)\n%s", diff)
	}
}

// TestConfigRestart checks that a changed configuration restarts the scheduler. Its ConfigMap keeps its
// name, so a hash of its content is in the pods; nothing else changes the hash.
func TestConfigRestart(t *testing.T) {
	sum := func(text string) any {
		t.Helper()
		return field(t, render(t, text)[deployment], "spec/template/metadata/annotations/checksum~config")
	}
	shipped, mine := sum(""), sum("{scheduler: {config: 'kind: KubeSchedulerConfiguration'}}")
	if other := sum("{scheduler: {config: 'kind: KubeSchedulerConfiguration #'}}"); shipped == mine || mine == other {
		t.Errorf("the pods of different configurations have the same hash: %v, %v, %v", shipped, mine, other)
	}
	if got := sum("{scheduler: {replicas: 3, podAnnotations: {a: b}}, nodeAgent: {mode: strict}}"); got != shipped {
		t.Errorf("the hash is %v although the configuration is the shipped one, want %v", got, shipped)
	}
}

// TestDocumentedValues renders the values in docs/install.md with Helm.
func TestDocumentedValues(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testkit.Repository(), "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n# my-values.yaml\n")[1:]
	if len(blocks) == 0 {
		t.Error("the page shows no values")
	}
	for _, b := range blocks {
		shown, _, _ := strings.Cut(b, "```")
		render(t, shown)
	}
}

func read(t *testing.T, name string, into func([]byte) error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder(), name))
	if err != nil {
		t.Fatal(err)
	}
	if err := into(text); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", name, err))
	}
}
