// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// resources are the plural names that the tests use, by kind and group.
var resources = map[string]string{
	"Deployment.apps": "deployments", "DaemonSet.apps": "daemonsets", "Node": "nodes", "Pod": "pods", "Secret": "secrets", "ConfigMap": "configmaps",
	"Namespace": "namespaces", "ServiceAccount": "serviceaccounts", "Job.batch": "jobs", "Lease.coordination.k8s.io": "leases",
	"ClusterRole.rbac.authorization.k8s.io": "clusterroles", "ClusterRoleBinding.rbac.authorization.k8s.io": "clusterrolebindings",
	"RoleBinding.rbac.authorization.k8s.io": "rolebindings", "Role.rbac.authorization.k8s.io": "roles", "ReplicaSet.apps": "replicasets",
	"ValidatingAdmissionPolicy.admissionregistration.k8s.io":        "validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io": "validatingadmissionpolicybindings",
	"CustomResourceDefinition.apiextensions.k8s.io":                 "customresourcedefinitions",
	"NodeGPUTopology.topology.nvtopo.dev":                           "nodegputopologies", "ComputePool.pool.nvtopo.dev": "computepools",
	"ElasticJob.pool.nvtopo.dev": "elasticjobs", "Invoice.pool.nvtopo.dev": "invoices", "UsageRecord.pool.nvtopo.dev": "usagerecords",
	"ClusterQueue.kueue.x-k8s.io": "clusterqueues", "LocalQueue.kueue.x-k8s.io": "localqueues",
	"AdmissionCheck.kueue.x-k8s.io": "admissionchecks", "WorkloadPriorityClass.kueue.x-k8s.io": "workloadpriorityclasses", "ClusterPolicy.nvidia.com": "clusterpolicies",
}

// read decodes objects. One without a UID has its kind and name for one.
func read(t *testing.T, texts ...string) []Object {
	t.Helper()
	var out []Object
	for _, text := range texts {
		for doc := range strings.SplitSeq(text, "\n---\n") {
			u := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(doc), &u.Object); err != nil {
				t.Fatalf("%v:\n%s", err, doc)
			}
			gvk := u.GroupVersionKind()
			resource := resources[strings.TrimSuffix(gvk.Kind+"."+gvk.Group, ".")]
			if resource == "" {
				t.Fatalf("no resource of %v", gvk)
			}
			if u.GetUID() == "" {
				u.SetUID(types.UID(u.GetKind() + "-" + u.GetNamespace() + "-" + u.GetName()))
			}
			out = append(out, Object{schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: resource}, u})
		}
	}
	return out
}

const (
	programs = `apiVersion: apps/v1
kind: Deployment
metadata: {name: nvtopo-scheduler, namespace: nvtopo-system, labels: {app.kubernetes.io/name: nvtopo-scheduler, app.kubernetes.io/part-of: nvtopo}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvtopo-exporter, namespace: nvtopo-system, labels: {app.kubernetes.io/name: nvtopo-exporter, app.kubernetes.io/part-of: nvtopo}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvtopo-node-agent, namespace: nvtopo-system, labels: {app.kubernetes.io/name: nvtopo-node-agent, app.kubernetes.io/part-of: nvtopo}}`
	space = `apiVersion: v1
kind: Namespace
metadata: {name: nvtopo-system, labels: {app.kubernetes.io/part-of: nvtopo}}`
	plugin = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvidia-device-plugin-daemonset, namespace: kube-system}
spec:
  template:
    spec:
      containers:
      - name: nvidia-device-plugin-ctr
        env: [{name: OTHER, value: x}, {name: KUBELET_SOCKET, value: /var/lib/kubelet/device-plugins/nvtopo/kubelet.sock}]`
)

// steps returns the steps in the tests' form.
func steps(r *Removal) (out []string) {
	for i := range r.Steps {
		s := &r.Steps[i]
		text := s.Stage.String() + ": " + s.Object.String()
		if s.Orphan {
			text += ", orphans"
		}
		if len(s.What) > 0 {
			text += " without " + strings.Join(s.What, ", ")
		}
		out = append(out, text)
	}
	if r.Later != nil {
		out = append(out, "later: "+r.Later.String())
	}
	return out
}

func TestPlan(t *testing.T) {
	tests := map[string]struct {
		objects   []string
		purge     bool
		wantSteps []string
		wantKept  []string // object: reason
	}{
		"a cluster without nvtopo has nothing to remove": {objects: []string{`apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {nvtopo.dev/gpu-count: "8"}}`}},
		"a RoleBinding that somebody made goes with the Role of ours that it gives": {
			objects: []string{`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: nvtopo-what-if, namespace: nvtopo-system, labels: {app.kubernetes.io/part-of: nvtopo}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: asker, namespace: nvtopo-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: nvtopo-what-if}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: other, namespace: nvtopo-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: theirs}`, space},
			wantSteps: []string{
				"installation: RoleBinding nvtopo-system/asker",
				"installation: Role nvtopo-system/nvtopo-what-if",
			},
			wantKept: []string{"Namespace nvtopo-system: it has RoleBinding nvtopo-system/other"},
		},
		"the agent goes first, then the plugin registers with kubelet, and the scheduler is the last program": {
			objects: []string{programs, plugin, space},
			wantSteps: []string{
				"agent: DaemonSet nvtopo-system/nvtopo-node-agent",
				"plugin: DaemonSet kube-system/nvidia-device-plugin-daemonset without variable KUBELET_SOCKET of container nvidia-device-plugin-ctr",
				"programs: DaemonSet nvtopo-system/nvtopo-exporter",
				"scheduler: Deployment nvtopo-system/nvtopo-scheduler",
				"later: Namespace nvtopo-system",
			},
		},
		"the GPU Operator's DaemonSet is changed by its ClusterPolicy": {
			objects: []string{
				`apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy}
spec: {devicePlugin: {env: [{name: KUBELET_SOCKET, value: /var/lib/kubelet/device-plugins/nvtopo/kubelet.sock}]}}`,
				strings.Replace(plugin, "namespace: kube-system}", "namespace: gpu-operator, ownerReferences: [{apiVersion: nvidia.com/v1, kind: ClusterPolicy, name: cluster-policy, uid: u}]}", 1),
			},
			wantSteps: []string{"plugin: ClusterPolicy cluster-policy without variable KUBELET_SOCKET of devicePlugin"},
		},
		"a plugin with the agent's folder mounted gets kubelet's back": {
			objects: []string{`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: plugin, namespace: kube-system}
spec: {template: {spec: {containers: [{name: c}], volumes: [{name: sockets, hostPath: {path: /var/lib/kubelet/device-plugins/nvtopo, type: Directory}}]}}}`},
			wantSteps: []string{"plugin: DaemonSet kube-system/plugin without folder /var/lib/kubelet/device-plugins/nvtopo of volume sockets"},
		},
		"the namespace goes once nothing else is to be done": {
			objects: []string{space}, wantSteps: []string{"namespace: Namespace nvtopo-system"},
		},
		"a record that is being deleted keeps the finalizer by which it is billed": {
			objects: []string{`apiVersion: pool.nvtopo.dev/v1alpha1
kind: UsageRecord
metadata: {name: r, namespace: team-a, deletionTimestamp: "2026-11-30T12:00:00Z", finalizers: [pool.nvtopo.dev/billing]}`},
			wantKept: []string{"UsageRecord team-a/r: money; --purge removes it"},
		},
		"a node and a definition of others stay, whatever their label": {
			objects: []string{`apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {app.kubernetes.io/part-of: nvtopo}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com, labels: {app.kubernetes.io/part-of: nvtopo}}`},
		},
		"a node that was cordoned to be divided is open again": {
			objects: []string{`apiVersion: v1
kind: Node
metadata:
  name: node-1
  annotations: {pool.nvtopo.dev/cordoned-for-virtualization: p, example.com/theirs: x}
  managedFields:
  - {manager: nvtopo-pool-controller, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:metadata": {"f:annotations": {"f:pool.nvtopo.dev/cordoned-for-virtualization": {}}}}}`},
			wantSteps: []string{"nodes: Node node-1 without annotation pool.nvtopo.dev/cordoned-for-virtualization, cordon for its devices to be divided"},
		},
		"a plugin with a socket of its own stays as it is": {
			objects: []string{strings.Replace(plugin, "device-plugins/nvtopo/", "device-plugins/other/", 1)},
		},
		"bindings go before policies, and role bindings before roles": {
			objects: []string{`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: nvtopo-a, labels: {app.kubernetes.io/part-of: nvtopo}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: nvtopo-a, labels: {app.kubernetes.io/part-of: nvtopo}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nvtopo-a, labels: {app.kubernetes.io/part-of: nvtopo}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nvtopo-a, labels: {app.kubernetes.io/part-of: nvtopo}}`},
			wantSteps: []string{
				"policies: ValidatingAdmissionPolicyBinding nvtopo-a", "policies: ValidatingAdmissionPolicy nvtopo-a",
				"installation: ClusterRoleBinding nvtopo-a", "installation: ClusterRole nvtopo-a",
			},
		},
		"what has our name and not our label is somebody else's": {objects: []string{`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nvtopo-scheduler}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nvtopo-exporter, labels: {app.kubernetes.io/part-of: other}}`}},
		"a tenant's pod with our label runs on": {objects: []string{`apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team-a, labels: {app.kubernetes.io/part-of: nvtopo}}`}},
		"our binding in kube-system goes, and another object there with our label stays": {
			objects: []string{`apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: "nvtopo-scheduler:auth-reader", namespace: kube-system, labels: {app.kubernetes.io/part-of: nvtopo}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: kube-system, labels: {app.kubernetes.io/part-of: nvtopo}}`},
			wantSteps: []string{"installation: RoleBinding kube-system/nvtopo-scheduler:auth-reader"},
		},
		"Leases of our programs go, the scheduler's after it, and another's stays with the namespace": {
			objects: []string{space, `apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: exporter-n, namespace: nvtopo-system, managedFields: [{manager: nvtopo-exporter}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: nvtopo-scheduler, namespace: nvtopo-system, managedFields: [{manager: nvtopo-scheduler}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: agent-other, namespace: nvtopo-system, managedFields: [{manager: other}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: exporter-n, namespace: elsewhere, managedFields: [{manager: nvtopo-exporter}]}`},
			wantSteps: []string{"leases: Lease nvtopo-system/exporter-n", "installation: Lease nvtopo-system/nvtopo-scheduler"},
			wantKept:  []string{"Namespace nvtopo-system: it has Lease nvtopo-system/agent-other"},
		},
		"labels of a node that the exporter wrote go, and those that somebody else wrote too stay": {
			objects: []string{`apiVersion: v1
kind: Node
metadata:
  name: node-1
  labels: {nvtopo.dev/gpu-count: "8", accelerator: mine, gpu-count: "8", other: x}
  annotations: {nvtopo.dev/gpu-topology: "{}"}
  managedFields:
  - {manager: nvtopo-exporter, fieldsV1: {"f:metadata": {"f:labels": {"f:nvtopo.dev/gpu-count": {}}, "f:annotations": {"f:nvtopo.dev/gpu-topology": {}}}}}
  - {manager: nvtopo-exporter-aliases, fieldsV1: {"f:metadata": {"f:labels": {"f:gpu-count": {}, "f:accelerator": {}}}}}
  - {manager: kubectl-label, fieldsV1: {"f:metadata": {"f:labels": {"f:accelerator": {}, "f:other": {}}}}}`},
			wantSteps: []string{"nodes: Node node-1 without annotation nvtopo.dev/gpu-topology, label gpu-count, label nvtopo.dev/gpu-count"},
		},
		"finalizers of ours go from a pod, and those of others stay": {
			objects: []string{`apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team-a, finalizers: [batch.kubernetes.io/job-tracking, pool.nvtopo.dev/metering, evil-nvtopo.dev/x]}`},
			wantSteps: []string{"finalizers: Pod team-a/p without finalizer pool.nvtopo.dev/metering"},
		},
		"money and definitions stay, without finalizers; Jobs of an ElasticJob run on": {
			objects: []string{money, `apiVersion: pool.nvtopo.dev/v1alpha1
kind: ElasticJob
metadata: {name: e, namespace: team-a}`},
			wantSteps: []string{
				"objects: ElasticJob team-a/e, orphans", "finalizers: UsageRecord team-a/r without finalizer pool.nvtopo.dev/billing",
			},
			wantKept: []string{"CustomResourceDefinition invoices.pool.nvtopo.dev: definition of a kind; --purge removes it", "Invoice i: money; --purge removes it", "UsageRecord team-a/r: money; --purge removes it"},
		},
		"a purge takes money before the definitions, and no definition of others": {
			objects: []string{money}, purge: true,
			wantSteps: []string{
				"finalizers: UsageRecord team-a/r without finalizer pool.nvtopo.dev/billing",
				"money: Invoice i", "money: UsageRecord team-a/r", "definitions: CustomResourceDefinition invoices.pool.nvtopo.dev",
			},
		},
		"queues that the pool controller made go with the pools, and others stay": {
			objects: []string{`apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: training.team-a, labels: {pool.nvtopo.dev/managed: training}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: training, namespace: team-a, labels: {pool.nvtopo.dev/managed: training}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: theirs}
---
apiVersion: pool.nvtopo.dev/v1alpha1
kind: ComputePool
metadata: {name: training, finalizers: [pool.nvtopo.dev/pool]}`},
			wantSteps: []string{
				"objects: ComputePool training", "objects: LocalQueue team-a/training", "objects: ClusterQueue training.team-a",
				"finalizers: ComputePool training without finalizer pool.nvtopo.dev/pool",
			},
		},
		"the placement check goes, also out of queues of others, and checks of others stay": {
			objects: []string{`apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: nvtopo-placement}
spec: {controllerName: pool.nvtopo.dev/placement}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: theirs}
spec: {controllerName: example.com/check}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: alone}
spec: {admissionChecksStrategy: {admissionChecks: [{name: nvtopo-placement}]}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: both}
spec: {admissionChecksStrategy: {admissionChecks: [{name: theirs, onFlavors: [f]}, {name: nvtopo-placement}]}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: theirs}
spec: {admissionChecksStrategy: {admissionChecks: [{name: theirs}]}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: training.team-a, labels: {pool.nvtopo.dev/managed: training}}
spec: {admissionChecksStrategy: {admissionChecks: [{name: nvtopo-placement}]}}`},
			wantSteps: []string{
				"objects: ClusterQueue alone without admission check nvtopo-placement", "objects: ClusterQueue both without admission check nvtopo-placement",
				"objects: ClusterQueue training.team-a", "objects: AdmissionCheck nvtopo-placement",
			},
		},
		"priorities that the pool controller made stay for the jobs that name them": {
			objects: []string{priorities}, wantKept: []string{"WorkloadPriorityClass nvtopo-p5: priority of jobs; --purge removes it"},
		},
		"a purge takes the pool controller's priorities, and none of others": {
			objects: []string{priorities}, purge: true, wantSteps: []string{"objects: WorkloadPriorityClass nvtopo-p5"},
		},
		"Helm's record of the release goes, and that of another stays with the namespace": {
			objects: []string{space, `apiVersion: v1
kind: ServiceAccount
metadata:
  name: nvtopo-exporter
  namespace: nvtopo-system
  labels: {app.kubernetes.io/part-of: nvtopo}
  annotations: {meta.helm.sh/release-name: gpus, meta.helm.sh/release-namespace: nvtopo-system}
---
apiVersion: v1
kind: Secret
type: helm.sh/release.v1
metadata: {name: sh.helm.release.v1.gpus.v1, namespace: nvtopo-system, labels: {owner: helm, name: gpus}}
---
apiVersion: v1
kind: Secret
type: helm.sh/release.v1
metadata: {name: sh.helm.release.v1.other.v1, namespace: nvtopo-system, labels: {owner: helm, name: other}}`},
			wantSteps: []string{"installation: ServiceAccount nvtopo-system/nvtopo-exporter", "installation: Secret nvtopo-system/sh.helm.release.v1.gpus.v1"},
			wantKept:  []string{"Namespace nvtopo-system: it has Secret nvtopo-system/sh.helm.release.v1.other.v1"},
		},
		"the namespace goes with what Kubernetes and our workloads made in it": {
			objects: []string{space, programs, `apiVersion: v1
kind: ConfigMap
metadata: {name: kube-root-ca.crt, namespace: nvtopo-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: nvtopo-system}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: nvtopo-scheduler-1, namespace: nvtopo-system, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: nvtopo-scheduler, uid: Deployment-nvtopo-system-nvtopo-scheduler}]}
---
apiVersion: v1
kind: Pod
metadata: {name: nvtopo-scheduler-1-x, namespace: nvtopo-system, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: nvtopo-scheduler-1, uid: ReplicaSet-nvtopo-system-nvtopo-scheduler-1}]}`},
			wantSteps: []string{
				"agent: DaemonSet nvtopo-system/nvtopo-node-agent", "programs: DaemonSet nvtopo-system/nvtopo-exporter",
				"scheduler: Deployment nvtopo-system/nvtopo-scheduler", "later: Namespace nvtopo-system",
			},
		},
		"what is being deleted already is not deleted again": {
			objects: []string{`apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q, labels: {pool.nvtopo.dev/managed: p}, deletionTimestamp: "2026-11-30T11:00:00Z", finalizers: [kueue.x-k8s.io/resource-in-use]}`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			objects := read(t, tc.objects...)
			before := make([]*unstructured.Unstructured, len(objects))
			for i := range objects {
				before[i] = objects[i].DeepCopy()
			}
			r := Plan(objects, Options{Purge: tc.purge, Now: now})
			if diff := cmp.Diff(tc.wantSteps, steps(r)); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			var kept []string
			for i := range r.Kept {
				kept = append(kept, r.Kept[i].Object.String()+": "+r.Kept[i].Why)
			}
			if diff := cmp.Diff(tc.wantKept, kept); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			for i := range objects {
				if diff := cmp.Diff(before[i], objects[i].Unstructured); diff != "" {
					t.Errorf("the plan changed %s (-before +after):\n%s", &objects[i], diff)
				}
			}
			slices.Reverse(objects) // the order in which the server lists them does not matter
			if diff := cmp.Diff(tc.wantSteps, steps(Plan(objects, Options{Purge: tc.purge, Now: now}))); diff != "" {
				t.Errorf("steps of the objects in another order (-want +got):\n%s", diff)
			}
		})
	}
}

const money = `apiVersion: pool.nvtopo.dev/v1alpha1
kind: Invoice
metadata: {name: i}
---
apiVersion: pool.nvtopo.dev/v1alpha1
kind: UsageRecord
metadata: {name: r, namespace: team-a, finalizers: [pool.nvtopo.dev/billing]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: invoices.pool.nvtopo.dev}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workloads.kueue.x-k8s.io}`

const priorities = `apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: nvtopo-p5, managedFields: [{manager: nvtopo-pool-controller}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: nvtopo-theirs, managedFields: [{manager: kubectl-create}]}`

// inPlace is a scheduler in place of kube-scheduler.
const inPlace = `apiVersion: apps/v1
kind: Deployment
metadata: {name: nvtopo-scheduler, namespace: nvtopo-system, labels: {app.kubernetes.io/name: nvtopo-scheduler, app.kubernetes.io/part-of: nvtopo}}
spec:
  template:
    spec:
      containers: [{name: scheduler, args: [--config=/etc/nvtopo/FILE]}]
      volumes: [{name: config, configMap: {name: nvtopo-scheduler-config-x}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: nvtopo-scheduler-config-x, namespace: nvtopo-system, labels: {app.kubernetes.io/part-of: nvtopo}}
data:
  alone.yaml: "profiles: [{schedulerName: topology-aware-scheduler}]"
  all.yaml: "profiles: [{schedulerName: topology-aware-scheduler}, {schedulerName: default-scheduler}]"`

func TestRefused(t *testing.T) {
	lease := func(renewed string) string {
		return `apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: kube-scheduler, namespace: kube-system}
spec: {holderIdentity: h, leaseDurationSeconds: 15, renewTime: "` + renewed + `"}`
	}
	tests := map[string]struct {
		objects     []string
		wantRefused bool
	}{
		"beside kube-scheduler":                          {[]string{strings.Replace(inPlace, "FILE", "alone.yaml", 1)}, false},
		"an installation of a build without the label":   {[]string{strings.ReplaceAll(programs, ", app.kubernetes.io/part-of: nvtopo", "")}, true},
		"a workload of others in our namespace":          {[]string{strings.NewReplacer(", app.kubernetes.io/part-of: nvtopo", "", "io/name: nvtopo-", "io/name: other-").Replace(programs)}, false},
		"in place of kube-scheduler, which does not run": {[]string{strings.Replace(inPlace, "FILE", "all.yaml", 1)}, true},
		"in place of kube-scheduler, which ran an hour ago": {
			[]string{strings.Replace(inPlace, "FILE", "all.yaml", 1), lease("2026-11-30T11:00:00.000000Z")}, true,
		},
		"in place of kube-scheduler, which runs again": {
			[]string{strings.Replace(inPlace, "FILE", "all.yaml", 1), lease("2026-11-30T11:59:55.000000Z")}, false,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			objects := read(t, tc.objects...)
			for i := range objects { // numbers as the API server's answers have them
				if spec := mapAt(objects[i].Object, "spec"); spec["leaseDurationSeconds"] != nil {
					spec["leaseDurationSeconds"] = int64(15)
				}
			}
			r := Plan(objects, Options{Now: now})
			if got := r.Refused != ""; got != tc.wantRefused {
				t.Errorf("refused %t: %s", got, r.Refused)
			}
		})
	}
}

func TestNotes(t *testing.T) {
	objects := read(t, strings.Replace(inPlace, "FILE", "alone.yaml", 1), plugin, `apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: team-a}
spec: {schedulerName: topology-aware-scheduler}
---
apiVersion: v1
kind: Pod
metadata: {name: another, namespace: team-a}
spec: {schedulerName: default-scheduler}
---
apiVersion: batch/v1
kind: Job
metadata: {name: e-base, namespace: team-a, ownerReferences: [{apiVersion: pool.nvtopo.dev/v1alpha1, kind: ElasticJob, name: e, uid: u}]}
---
apiVersion: v1
kind: Node
metadata:
  name: node-1
  labels: {nvidia.com/mig.config: all-1g.10gb}
  managedFields: [{manager: nvtopo-pool-controller, fieldsV1: {"f:metadata": {"f:labels": {"f:nvidia.com/mig.config": {}}}}}]`)
	got := strings.Join(Plan(objects, Options{Now: now}).Notes, "\n")
	for _, want := range []string{"team-a/waits", "team-a/e-base", "node-1 (nvidia.com/mig.config)", "DaemonSet kube-system/nvidia-device-plugin-daemonset"} {
		if !strings.Contains(got, want) {
			t.Errorf("no note names %s:\n%s", want, got)
		}
	}
	if strings.Contains(got, "team-a/another") {
		t.Errorf("a pod of another scheduler is named:\n%s", got)
	}
}

// TestWaitingPodsNotes: the pods that wait for nvtopo's scheduler are named by each run, also once its Deployment
// and its configuration are gone.
func TestWaitingPodsNotes(t *testing.T) {
	const tried = ", managedFields: [{manager: kubectl-create, operation: Update}, {manager: nvtopo-scheduler, operation: Update, subresource: status}]"
	pod := func(name, scheduler, more string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: team-a" + more + "}\nspec: {schedulerName: " + scheduler + "}"
	}
	pods := strings.Join([]string{
		pod("shipped", "topology-aware-scheduler", ""), pod("renamed", "gpu-scheduler", tried), pod("another", "batch-scheduler", ""),
		pod("default", "default-scheduler", ""), pod("was-ours", "default-scheduler", tried),
		"apiVersion: v1\nkind: Pod\nmetadata: {name: runs, namespace: team-a" + tried + "}", // of a pod with a node the metadata is read
	}, "\n---\n")
	named := func(names string) []string {
		return []string{"pods that name nvtopo's scheduler have no node and will get none: " + names + ". Give their templates another schedulerName"}
	}
	tests := map[string]struct {
		objects []string
		want    []string
	}{
		"nvtopo is installed": {[]string{strings.NewReplacer("FILE", "alone.yaml", "alone.yaml: \"profiles: [{schedulerName: topology", "alone.yaml: \"profiles: [{schedulerName: batch-scheduler}, {schedulerName: topology").Replace(inPlace), pods}, named("team-a/another, team-a/renamed, team-a/shipped")},
		"it is gone":          {[]string{pods}, named("team-a/renamed, team-a/shipped")},
		"it is gone, and pods of others alone wait": {[]string{pod("another", "batch-scheduler", "")}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Plan(read(t, tc.objects...), Options{Now: now}).Notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWithoutCheck: a ClusterQueue loses the placement check, and keeps its other checks as they are.
func TestWithoutCheck(t *testing.T) {
	queue := func(checks string) string {
		return "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: q}\nspec: {admissionChecksStrategy: {admissionChecks: [" + checks + "]}}"
	}
	tests := map[string]struct {
		checks string
		want   map[string]any // under spec; nil: no patch
	}{
		"the only one": {"{name: nvtopo-placement}", map[string]any{"admissionChecksStrategy": nil}},
		"beside another": {"{name: theirs, onFlavors: [f]}, {name: nvtopo-placement}", map[string]any{"admissionChecksStrategy": map[string]any{
			"admissionChecks": []any{map[string]any{"name": "theirs", "onFlavors": []any{"f"}}},
		}}},
		"another alone": {"{name: theirs}", nil},
		"none":          {"", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := read(t, queue(tc.checks))[0]
			patch, _ := WithoutCheck.patch(&o)
			var want map[string]any
			if tc.want != nil {
				want = map[string]any{"spec": tc.want}
			}
			if diff := cmp.Diff(want, patch); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}
