// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"sigs.k8s.io/yaml"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/exporter"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// installCRD applies the shipped definition, changed.
func (e *testEnv) installCRD(t *testing.T, change func(properties func(path ...string) map[string]apiextensionsv1.JSONSchemaProps)) {
	t.Helper()
	crds, err := manifests.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(crds, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Spec.Names.Kind == v1alpha1.Kind })
	if i < 0 {
		t.Fatalf("no definition of %s", v1alpha1.Kind)
	}
	change(func(path ...string) map[string]apiextensionsv1.JSONSchemaProps {
		at := *crds[i].Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, p := range path {
			at = at.Properties[p]
			if at.Items != nil {
				at = *at.Items.Schema
			}
		}
		return at.Properties
	})
	data, err := yaml.Marshal(crds[i])
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ApplyManifests(t.Context(), fstest.MapFS{"crd.yaml": {Data: data}}); err != nil {
		t.Fatal(err)
	}
}

// TestOlderDefinition: an exporter that is newer than the definition says which field this lacks,
// publishes nothing and does not vouch for the node.
func TestOlderDefinition(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.installCRD(t, func(properties func(path ...string) map[string]apiextensionsv1.JSONSchemaProps) {
		delete(properties("spec", "gpus"), "model")
	})
	spec := l.addNode(t, "n1", "dgx-h100")
	testkit.Eventually(t, waitLimit, "the definition lacks the model", func(context.Context) (bool, string) {
		err := l.tryPublish(t, spec, l.graphs["n1"])
		return err != nil && strings.Contains(err.Error(), "apply that") && strings.Contains(err.Error(), "model: field not declared in schema"), fmt.Sprint(err)
	})
}

// TestTightenedSchema: a tightened schema keeps stored objects writable. A limit that a stored
// object breaks must not keep anybody from writing the rest of it.
func TestTightenedSchema(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.installCRD(t, func(properties func(path ...string) map[string]apiextensionsv1.JSONSchemaProps) {
		model := properties("spec", "gpus")["model"]
		model.MaxLength = nil
		properties("spec", "gpus")["model"] = model
	})
	spec := l.addNode(t, "n1", "dgx-h100")
	long := func(d *nvtopo.GPU) { d.Model = strings.Repeat("long ", 40) }
	l.publishOnce(t, spec, changed(t, l.graphs["n1"], long))
	l.installCRD(t, func(func(path ...string) map[string]apiextensionsv1.JSONSchemaProps) {})
	l.refusesLongModels(t, changed(t, l.graphs["n1"], long))

	n := l.agentOf(t, "n1")
	n.start(t)
	l.create(t, gpuPod("p", "other", 2).Obj())
	pod := l.bindTo(t, "n1", "p")
	n.gave(t, map[types.UID]recordedPod{pod.UID: {"main": n.ids(0, 1)}})
	n.published(t, "p main foreign")

	// The exporter's half as well: another list of spec, another health in status.
	lost := func(d *nvtopo.GPU) {
		if d.Index == 3 {
			d.Unhealthy = "GPU is lost"
		}
	}
	sick := changed(t, l.graphs["n1"], lost)
	sick.NICs = nil
	l.publishOnce(t, spec, sick)
	obj, err := n.status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if obj.Status.Summary == nil || obj.Status.Summary.Healthy != 7 || len(obj.Spec.NICs) != 0 {
		t.Errorf("summary %+v, adapters %+v; want 7 healthy GPUs, and no adapters", obj.Status.Summary, obj.Spec.NICs)
	}

	// Of the list itself the API server takes nothing else: an atomic one is judged whole.
	// That it has no NUMA node is not published, that the GPU is lost is.
	moved := changed(t, sick, func(d *nvtopo.GPU) {
		if lost(d); d.Index == 3 {
			d.NUMANode = nvtopo.UnknownNUMA
		}
		if d.Index == 5 {
			d.Unhealthy = "GPU is lost"
		}
	})
	if err := l.tryPublish(t, spec, moved); err == nil || !strings.Contains(err.Error(), "spec.gpus[0].model") {
		t.Errorf("another GPU in the list is published with %v, want a refusal that names spec.gpus[0].model", err)
	}
	if obj, err = n.status(t.Context()); err != nil || obj.Status.Summary.Healthy != 6 {
		t.Errorf("summary %+v and %v, want 6 healthy GPUs", obj.Status.Summary, err)
	}
}

// changed is a graph with other GPUs.
func changed(t *testing.T, g *nvtopo.Graph, change func(*nvtopo.GPU)) *nvtopo.Graph {
	t.Helper()
	gpus := slices.Clone(g.GPUs)
	links := map[[2]int]nvtopo.Link{}
	for i := range gpus {
		change(&gpus[i])
		for j := i + 1; j < len(gpus); j++ {
			links[[2]int{i, j}] = g.Link(i, j)
		}
	}
	out, err := nvtopo.NewGraph(gpus, g.NUMANodes, g.NICs, links)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// refusesLongModels waits until the API server refuses a new object for its models.
func (e *testEnv) refusesLongModels(t *testing.T, g *nvtopo.Graph) {
	t.Helper()
	dyn, err := dynamic.NewForConfig(e.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	obj := v1alpha1.FromGraph("n2", string(gpuResource), g)
	obj.Spec.NodeUID = "uid"
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: fields}
	testkit.Eventually(t, waitLimit, "the limit is in force", func(ctx context.Context) (bool, string) {
		_, err := dyn.Resource(v1alpha1.GroupVersionResource).Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "spec.gpus[0].model"), fmt.Sprint(err)
	})
}

// TestUnknownLinkClass: an exporter was rolled back, or this scheduler, and a
// node's object has a field and a value that nobody here knows. Of the node nothing
// is believed, the others are used as ever, and our exporter takes the object over.
func TestUnknownLinkClass(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.installCRD(t, func(properties func(path ...string) map[string]apiextensionsv1.JSONSchemaProps) {
		link := properties("spec", "linkKinds")
		class := link["class"]
		class.Enum = append(class.Enum, apiextensionsv1.JSON{Raw: []byte(`"UALink"`)})
		link["class"], link["errors"] = class, apiextensionsv1.JSONSchemaProps{Type: "integer"}
	})
	l.node(t, "n2", "dgx-h100")
	spec := l.addNode(t, "n1", "dgx-h100")
	l.laterExporter(t, spec)
	l.startScheduler(t, profile{name: preBindProfile, write: "PreBind"})

	l.create(t, gpuPod("waits", preBindProfile, 2).NodeSelector(host("n1")).Obj(), gpuPod("runs", preBindProfile, 2).NodeSelector(host("n2")).Obj())
	if node := l.bound(t, "runs").Spec.NodeName; node != "n2" {
		t.Errorf("the pod is on %s, want n2", node)
	}
	t.Logf("the other pod: %s", l.refused(t, "waits"))

	l.publish(t, devcluster.ExporterOptions{}, spec)
	if node := l.bound(t, "waits").Spec.NodeName; node != "n1" {
		t.Errorf("the pod is on %s, want n1", node)
	}
	dyn, err := dynamic.NewForConfig(l.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	u, err := dyn.Resource(v1alpha1.GroupVersionResource).Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("UALink")) || bytes.Contains(text, []byte(`"errors":7`)) {
		t.Errorf("something of the later exporter is left: %s", text)
	}
}

// laterExporter publishes a node as a later exporter would, once.
func (e *testEnv) laterExporter(t *testing.T, spec devcluster.NodeSpec) {
	t.Helper()
	dyn, err := dynamic.NewForConfig(e.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	node, err := e.client.CoreV1().Nodes().Get(t.Context(), spec.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	obj := v1alpha1.FromGraph(spec.Name, string(gpuResource), e.graphs[spec.Name])
	obj.Spec.NodeUID, obj.Spec.BootID = node.UID, node.Status.NodeInfo.BootID
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range fields["spec"].(map[string]any)["linkKinds"].([]any) {
		link.(map[string]any)["class"], link.(map[string]any)["errors"] = "UALink", int64(7)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.Kind,
		"metadata": map[string]any{"name": spec.Name}, "spec": fields["spec"],
	}}
	opts := metav1.ApplyOptions{FieldManager: exporter.FieldManager, Force: true}
	testkit.Eventually(t, waitLimit, "the schema has the value", func(ctx context.Context) (bool, string) {
		_, err := dyn.Resource(v1alpha1.GroupVersionResource).Apply(ctx, spec.Name, u, opts)
		return err == nil, fmt.Sprint(err)
	})
	lease := nodelease.Lease{
		Namespace: systemNamespace, Name: nodelease.ExporterPrefix + spec.Name, Node: spec.Name, NodeUID: node.UID, Manager: exporter.FieldManager,
	}
	if err := lease.Renew(t.Context(), e.client, time.Now()); err != nil {
		t.Fatal(err)
	}
}
