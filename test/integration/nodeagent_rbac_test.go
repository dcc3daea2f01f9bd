// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const agentAccount = "nvtopo-node-agent"

// TestNodeAgentRights sends an agent's requests, and those it must not make, with
// the token of the shipped account bound to node n1.
func TestNodeAgentRights(t *testing.T) { //nolint:tparallel // its steps share one cluster
	c := startCluster(t, devcluster.Config{})
	if err := c.InstallManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin := callerOf(t, c.RESTConfig(), nil)
	for _, node := range []string{"n1", "n2"} {
		plainNode(t, admin.kube, node)
		graph := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.Kind, "metadata": map[string]any{"name": node},
			"spec": map[string]any{"nodeUID": "u", "gpus": []any{}, "numaNodes": []any{}},
		}}
		if _, err := admin.dyn.Resource(v1alpha1.GroupVersionResource).Create(t.Context(), graph, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.kube.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: podSpec()}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bound := func(name string) caller {
		cfg, err := c.NodeBoundConfig(t.Context(), systemNamespace, name, "n1")
		return callerOf(t, cfg, err)
	}
	agent := bound(agentAccount)
	looseConfig, err := c.ServiceAccountConfig(t.Context(), systemNamespace, agentAccount)
	loose := callerOf(t, looseConfig, err)
	t.Run("topology", func(t *testing.T) { testAgentTopology(t, agent, loose, bound(exporterAccount)) })
	t.Run("leases", func(t *testing.T) { testAgentLeases(t, agent, bound(schedulerAccount)) })
	t.Run("pods", func(t *testing.T) { testAgentPods(t, agent) })
	t.Run("the rest", func(t *testing.T) { testAgentRest(t, admin, agent) })
}

// applyStatus applies a status as the agent and the exporter do.
func applyStatus(t *testing.T, by caller, manager, name string, status map[string]any) (*unstructured.Unstructured, error) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.Kind,
		"metadata": map[string]any{"name": name, "labels": map[string]any{"forged": "x"}}, "status": status,
		"spec": map[string]any{"nodeUID": "forged"}, // the status endpoint has to ignore this, and the label
	}}
	return by.dyn.Resource(v1alpha1.GroupVersionResource).ApplyStatus(t.Context(), name, u, metav1.ApplyOptions{FieldManager: manager, Force: true})
}

func testAgentTopology(t *testing.T, agent, loose, exporter caller) {
	t.Helper()
	condition := func(kind string) []any {
		return []any{map[string]any{"type": kind, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}}
	}
	record := map[string]any{
		"kubelet":    map[string]any{"topologyManagerPolicy": "none"},
		"conditions": condition(v1alpha1.ConditionEnforced),
		"allocations": []any{map[string]any{
			"podUID": "u", "container": "c", "resource": "nvidia.com/gpu", "gpus": []any{"GPU-0"}, "state": v1alpha1.StateConfirmed,
		}},
	}
	hardware := map[string]any{
		"gpuHealth":  []any{map[string]any{"id": "GPU-0", "healthy": true}},
		"conditions": condition(v1alpha1.ConditionReady),
	}
	const agents, exporters = "are the node agent's", "are the exporter's"
	for _, tc := range []struct {
		name, node string
		by         caller
		status     map[string]any
		want       string
	}{
		{"what kubelet recorded on its node", "n1", agent, record, ""},
		{"what kubelet recorded elsewhere", "n2", agent, record, "may not write the NodeGPUTopology of n2"},
		{"with a token that is not bound to a node", "n1", loose, record, "not bound to a node"},
		{"the health of its GPUs", "n1", agent, hardware, exporters},
		{"the exporter writes the hardware", "n1", exporter, hardware, ""},
		{"the exporter writes what kubelet recorded", "n1", exporter, map[string]any{"allocations": []any{map[string]any{
			"podUID": "v", "container": "c", "resource": "nvidia.com/gpu", "gpus": []any{"GPU-1"}, "state": v1alpha1.StateForeign,
		}}}, agents},
		{"the exporter says that the node is enforced", "n1", exporter, map[string]any{"conditions": []any{map[string]any{
			"type": v1alpha1.ConditionEnforced, "status": "False", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
		}}}, agents},
		{"again, now that both have written", "n1", agent, record, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			manager := agentAccount
			if tc.by == exporter {
				manager = exporterAccount // with the agent's it would give up what the agent wrote
			}
			got, err := applyStatus(t, tc.by, manager, tc.node, tc.status)
			checkAllowed(t, err, tc.want)
			if err != nil {
				return
			}
			if uid, _, _ := unstructured.NestedString(got.Object, "spec", "nodeUID"); uid != "u" || len(got.GetLabels()) != 0 {
				t.Errorf("a write of the status changed the rest: nodeUID %q, labels %v", uid, got.GetLabels())
			}
		})
	}
	topologies := agent.dyn.Resource(v1alpha1.GroupVersionResource)
	_, err := topologies.Patch(t.Context(), "n1", types.MergePatchType, []byte(`{"spec":{"nodeUID":"forged"}}`), metav1.PatchOptions{})
	checkAllowed(t, err, "cannot patch resource")
	_, err = topologies.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.Kind, "metadata": map[string]any{"name": "n3"},
	}}, metav1.CreateOptions{})
	checkAllowed(t, err, "cannot create resource")
	checkAllowed(t, topologies.Delete(t.Context(), "n1", metav1.DeleteOptions{}), "cannot delete resource")
	list, err := topologies.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=n1"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("the agent cannot read its node's graph: %v", err)
	}
}

func testAgentLeases(t *testing.T, agent, scheduler caller) {
	t.Helper()
	apply := func(name, namespace string) error {
		_, err := agent.dyn.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(namespace).Apply(t.Context(), name,
			&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": coordinationv1.SchemeGroupVersion.String(), "kind": "Lease", "metadata": map[string]any{"name": name},
			}}, metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err
	}
	checkAllowed(t, apply("agent-n1", systemNamespace), "")
	checkAllowed(t, apply("agent-n1", systemNamespace), "") // now an update
	for _, name := range []string{"agent-n2", "exporter-n1", "nvtopo-scheduler", "nvtopo-controller"} {
		checkAllowed(t, apply(name, systemNamespace), "may not write the Lease nvtopo-system/"+name)
	}
	checkAllowed(t, apply("agent-n1", "kube-node-lease"), "cannot patch resource")
	checkAllowed(t, agent.kube.CoordinationV1().Leases(systemNamespace).Delete(t.Context(), "agent-n1", metav1.DeleteOptions{}), "cannot delete resource")

	// The controller is elected by a Lease of its own, with the scheduler's account.
	leases := scheduler.kube.CoordinationV1().Leases(systemNamespace)
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "nvtopo-controller"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	checkAllowed(t, err, "")
}

// testAgentPods: an agent reads pods and writes none, by no way there is.
func testAgentPods(t *testing.T, agent caller) {
	t.Helper()
	pods := agent.kube.CoreV1().Pods("default")
	if _, err := agent.kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}); err != nil {
		t.Errorf("the agent cannot list the pods of its node: %v", err)
	}
	if w, err := agent.kube.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}); err != nil {
		t.Errorf("the agent cannot watch the pods of its node: %v", err)
	} else {
		w.Stop()
	}
	label := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	patch := func(sub ...string) error {
		_, err := pods.Patch(t.Context(), "p", types.MergePatchType, label, metav1.PatchOptions{}, sub...)
		return err
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: podSpec()}
	_, created := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	_, updated := pods.Update(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: podSpec()}, metav1.UpdateOptions{})
	bind := pods.Bind(t.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: v1.ObjectReference{Kind: "Node", Name: "n1"}}, metav1.CreateOptions{})
	evict := pods.EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
	for way, err := range map[string]error{
		"create": created, "update": updated, "patch": patch(), "patch status": patch("status"), "patch resize": patch("resize"),
		"patch ephemeralcontainers": patch("ephemeralcontainers"), "bind": bind, "evict": evict, "delete": pods.Delete(t.Context(), "p", metav1.DeleteOptions{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", way, err)
		}
	}
}

func testAgentRest(t *testing.T, admin, agent caller) {
	t.Helper()
	if _, err := agent.kube.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err != nil {
		t.Errorf("the agent cannot read its node: %v", err)
	}
	_, err := agent.kube.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, []byte(`{"metadata":{"labels":{"nvtopo.dev/x":"y"}}}`), metav1.PatchOptions{})
	checkAllowed(t, err, "cannot patch resource")

	testAgentEvents(t, admin, agent)

	// kubelet asks the API server for these.
	for subresource, want := range map[string]bool{"configz": true, "proxy": false, "pods": false, "stats": false, "log": false, "metrics": false} {
		review, err := admin.kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + systemNamespace + ":" + agentAccount,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: subresource, Name: "n1"},
			},
		}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed != want {
			t.Errorf("get nodes/%s: allowed %t, want %t (%v)", subresource, review.Status.Allowed, want, err)
		}
	}
	for _, secret := range []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := agent.kube.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
			return err
		},
		func(ctx context.Context) error {
			_, err := agent.kube.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			return err
		},
	} {
		checkAllowed(t, secret(t.Context()), "cannot list resource")
	}
}

// testAgentEvents: an agent writes events about pods in its own name, through both APIs of events.
func testAgentEvents(t *testing.T, admin, agent caller) {
	t.Helper()
	const name = "may only write events of nvtopo-node-agent on n1"
	own := func(name string) *eventsv1.Event {
		return &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name}, EventTime: metav1.NewMicroTime(time.Now()), Type: v1.EventTypeWarning, Reason: "GPUsSwapped", Action: "Verifying",
			ReportingController: "nvtopo-node-agent", ReportingInstance: "n1", Regarding: v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "p"},
		}
	}
	create := func(by caller, e *eventsv1.Event) error {
		_, err := by.kube.EventsV1().Events("default").Create(t.Context(), e, metav1.CreateOptions{})
		return err
	}
	count := func(name string) error {
		_, err := agent.kube.EventsV1().Events("default").Patch(t.Context(), name, types.StrategicMergePatchType,
			[]byte(`{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`), metav1.PatchOptions{})
		return err
	}
	foreign := own("foreign")
	foreign.ReportingInstance = "n2"
	checkAllowed(t, create(admin, foreign), "")
	checkAllowed(t, create(agent, own("e")), "")
	checkAllowed(t, count("e"), "")
	checkAllowed(t, count("foreign"), name)
	for why, tc := range map[string]struct {
		change func(*eventsv1.Event)
		want   string
	}{
		"another node's":     {func(e *eventsv1.Event) { e.ReportingInstance = "n2" }, name},
		"the scheduler's":    {func(e *eventsv1.Event) { e.ReportingController = "nvtopo-scheduler" }, name},
		"about a Node":       {func(e *eventsv1.Event) { e.Regarding.Kind = "Node" }, "about Pods of v1"},
		"for another reason": {func(e *eventsv1.Event) { e.Reason = "FailedScheduling" }, "the Warnings of docs/events.md"},
	} {
		e := own("bad")
		tc.change(e)
		if err := create(agent, e); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("an event %s: %v, want a refusal with %q", why, err, tc.want)
		}
	}
	// The role has no events of the core API. Were it granted, the policy would hold all the same.
	old := &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "old", Namespace: "default"}, Type: v1.EventTypeWarning, Reason: "FailedScheduling", Message: "x",
		InvolvedObject: v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "p"}, Source: v1.EventSource{Component: "nvtopo-scheduler"},
	}
	_, err := agent.kube.CoreV1().Events("default").Create(t.Context(), old, metav1.CreateOptions{})
	checkAllowed(t, err, "cannot create resource")
	grant(t, admin.kube, agentAccount, systemNamespace, []string{""}, []string{"events"}, []string{"create"})
	testkit.Eventually(t, waitLimit, "the policy judges events of the core API", func(ctx context.Context) (bool, string) {
		_, err := agent.kube.CoreV1().Events("default").Create(ctx, old, metav1.CreateOptions{})
		return err != nil && strings.Contains(err.Error(), name), fmt.Sprint(err)
	})
	old.ReportingController, old.ReportingInstance, old.Reason = "nvtopo-node-agent", "n1", "GPUsSwapped"
	_, err = agent.kube.CoreV1().Events("default").Create(t.Context(), old, metav1.CreateOptions{})
	checkAllowed(t, err, "")
}

// TestForgedAllocations tries every request that could plant an
// allocation in a pod, as an administrator of all workloads who is not a
// scheduler of ours. The answer has to name the key and to say what to do.
func TestForgedAllocations(t *testing.T) { //nolint:tparallel // its steps share one cluster
	c := startCluster(t, devcluster.Config{})
	if err := c.InstallManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin := callerOf(t, c.RESTConfig(), nil)
	plainNode(t, admin.kube, "n1")
	if _, err := admin.kube.CoreV1().ServiceAccounts("default").Create(t.Context(), &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "ops"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	grant(t, admin.kube, "ops", "default", []string{"", "apps", "batch"}, []string{"*"}, []string{"*"})
	cfg, err := c.ServiceAccountConfig(t.Context(), "default", "ops")
	ops := callerOf(t, cfg, err)
	testkit.Eventually(t, waitLimit, "the account may list pods", func(ctx context.Context) (bool, string) {
		_, err := ops.kube.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err == nil, "refused"
	})
	t.Run("pods", func(t *testing.T) { testForgedPods(t, ops) })
	t.Run("templates", func(t *testing.T) { testForgedTemplates(t, ops) })
}

func testForgedPods(t *testing.T, ops caller) {
	t.Helper()
	const key = "nvtopo.dev/allocation"
	const want = "metadata.annotations: " + key + ": only the scheduler that chooses the GPUs writes this; drop it"
	pods := ops.kube.CoreV1().Pods("default")
	forged := map[string]string{key: `{"version":1}`}
	create := func(name string, annotations map[string]string) (*v1.Pod, error) {
		return pods.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: podSpec()}, metav1.CreateOptions{})
	}
	p, err := create("p", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = create("forged", forged)
	checkAllowed(t, err, want)
	p.Annotations = forged
	_, err = pods.Update(t.Context(), p.DeepCopy(), metav1.UpdateOptions{})
	checkAllowed(t, err, want)
	_, err = pods.UpdateStatus(t.Context(), p.DeepCopy(), metav1.UpdateOptions{})
	checkAllowed(t, err, want)
	for _, sub := range [][]string{nil, {"status"}} {
		_, err = pods.Patch(t.Context(), "p", types.StrategicMergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":"{}"}}}`), metav1.PatchOptions{}, sub...)
		checkAllowed(t, err, want)
		_, err = pods.Patch(t.Context(), "p", types.ApplyYAMLPatchType, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","annotations":{"`+key+`":"{}"}}}`),
			metav1.PatchOptions{FieldManager: "ops"}, sub...)
		checkAllowed(t, err, want)
	}
	binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: forged}, Target: v1.ObjectReference{Kind: "Node", Name: "n1"}}
	checkAllowed(t, pods.Bind(t.Context(), binding, metav1.CreateOptions{}), want)
	checkAllowed(t, ops.kube.CoreV1().RESTClient().Post().Namespace("default").Resource("bindings").Body(binding).Do(t.Context()).Error(), want)
	for _, sub := range []string{"resize", "ephemeralcontainers"} {
		if _, err := pods.Patch(t.Context(), "p", types.StrategicMergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":"{}"}}}`), metav1.PatchOptions{}, sub); err != nil {
			t.Errorf("patch %s: %v", sub, err)
		}
	}
	got, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Annotations) != 0 || got.Spec.NodeName != "" {
		t.Errorf("the pod has annotations %v and is on node %q after all of that", got.Annotations, got.Spec.NodeName)
	}
}

func testForgedTemplates(t *testing.T, ops caller) {
	t.Helper()
	labels := map[string]string{"app": "x"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	// objects makes one of each kind that pods are made from.
	objects := func(annotations map[string]string) map[string]runtime.Object {
		meta := metav1.ObjectMeta{GenerateName: "x-"}
		template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: podSpec()}
		once := *template.DeepCopy()
		once.Spec.RestartPolicy = v1.RestartPolicyNever
		return map[string]runtime.Object{
			"deployments":            &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}},
			"replicasets":            &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}},
			"statefulsets":           &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template}},
			"daemonsets":             &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}},
			"jobs":                   &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: once}},
			"cronjobs":               &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "@daily", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once}}}},
			"replicationcontrollers": &v1.ReplicationController{ObjectMeta: meta, Spec: v1.ReplicationControllerSpec{Selector: labels, Template: &template}},
			"podtemplates":           &v1.PodTemplate{ObjectMeta: meta, Template: template},
		}
	}
	path := map[string]string{
		"cronjobs": "spec.jobTemplate.spec.template.metadata.annotations", "podtemplates": "template.metadata.annotations",
	}
	post := func(resource string, object runtime.Object) error {
		client := ops.kube.CoreV1().RESTClient()
		switch resource {
		case "deployments", "replicasets", "statefulsets", "daemonsets":
			client = ops.kube.AppsV1().RESTClient()
		case "jobs", "cronjobs":
			client = ops.kube.BatchV1().RESTClient()
		}
		return client.Post().Namespace("default").Resource(resource).Body(object).Do(t.Context()).Error()
	}
	for _, key := range []string{"nvtopo.dev/allocation", "nvtopo.dev/gpu-ids.main", "scheduling.k8s.io/gpu-ids"} {
		for resource, object := range objects(map[string]string{key: "x"}) {
			where := path[resource]
			if where == "" {
				where = "spec.template.metadata.annotations"
			}
			checkAllowed(t, post(resource, object), where+": drop "+key+": the scheduler chooses GPUs for each pod by itself")
		}
	}
	for resource, object := range objects(map[string]string{"nvtopo.dev/min-link": "NVLINK"}) {
		if err := post(resource, object); err != nil {
			t.Errorf("%s without an allocation: %v", resource, err)
		}
	}
}
