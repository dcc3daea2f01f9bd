// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	yamlv3 "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nvtopo/nvtopo/internal/fieldpath"
)

const (
	// MaxAsked is how many pods one question may have.
	MaxAsked = 1000
	// maxMemory bounds the memory of a question's pods, in bytes: 128 KiB for each of MaxAsked.
	maxMemory = 128 << 20
	// maxValues bounds the values in one object. A short text has many of them, and an empty container
	// takes a thousand bytes.
	maxValues = 1 << 16
	// maxParts bounds the commas and lines of a document, a List of many objects included, before it is
	// parsed: a YAML parser takes some hundred bytes for each value.
	maxParts = 8 * maxValues
)

// ErrAsked says that what is asked for is at fault, and no snapshot or program.
var ErrAsked = errors.New("it cannot be answered")

// Asked are the pods and PodGroups of a question.
type Asked struct {
	Pods   []*v1.Pod
	Groups []*schedulingv1alpha1.PodGroup

	memory int // of the objects, in bytes
}

// ReadAsked reads Pods, Jobs, Deployments, StatefulSets, PodGroups and Lists of them, in YAML or JSON.
// Fields that are not known are errors. A Job stands for the pods that it would run at first, a
// Deployment and a StatefulSet for spec.replicas of the template. Objects without a namespace are in
// the given one. It needs a bounded amount of memory, whatever the text is.
func ReadAsked(data []byte, namespace string) (*Asked, error) {
	a := &Asked{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if err := a.addDocument(text, namespace); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
	return a, a.check()
}

// addDocument adds an object, or the objects of a List.
func (a *Asked) addDocument(text []byte, namespace string) error {
	if n := bytes.Count(text, []byte(",")) + bytes.Count(text, []byte("\n")); n > maxParts {
		return fmt.Errorf("%d commas and lines: want at most %d", n, maxParts)
	}
	if err := noAliases(text); err != nil {
		return err
	}
	var is metav1.TypeMeta
	if err := yaml.Unmarshal(text, &is); err != nil {
		return err
	}
	switch is.APIVersion + " " + is.Kind {
	case " ": // comments only
		var empty any
		if err := yaml.Unmarshal(text, &empty); err == nil && empty == nil {
			return nil
		}
	case "v1 List":
		return a.addList(text, namespace)
	}
	return a.add(text, &is, namespace)
}

// noAliases refuses YAML's aliases: by them a short text stands for one of any length.
func noAliases(text []byte) error {
	if json.Valid(text) {
		return nil
	}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(text, &document); err != nil {
		return err
	}
	if alias := aliasIn(&document); alias != nil {
		return fmt.Errorf("line %d: *%s: an alias is not read, write out what it stands for", alias.Line, alias.Value)
	}
	return nil
}

func aliasIn(node *yamlv3.Node) *yamlv3.Node {
	if node.Kind == yamlv3.AliasNode {
		return node
	}
	for _, child := range node.Content {
		if alias := aliasIn(child); alias != nil {
			return alias
		}
	}
	return nil
}

// add adds one object, of what its text says that it is.
func (a *Asked) add(text []byte, is *metav1.TypeMeta, namespace string) error {
	switch is.APIVersion + " " + is.Kind {
	case "v1 Pod":
		pod := &v1.Pod{}
		if err := strictly(text, pod, is, &pod.ObjectMeta, namespace); err != nil {
			return err
		}
		if err := a.take(1, 1, pod); err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		a.Pods = append(a.Pods, pod)
		return nil
	case GroupKind.APIVersion + " " + GroupKind.Kind:
		group := &schedulingv1alpha1.PodGroup{}
		if err := strictly(text, group, is, &group.ObjectMeta, namespace); err != nil {
			return err
		}
		if err := a.take(0, 1, group); err != nil {
			return fmt.Errorf("PodGroup %s: %w", group.Name, err)
		}
		a.Groups = append(a.Groups, group)
		return nil
	case "batch/v1 Job":
		job := &batchv1.Job{}
		if err := strictly(text, job, is, &job.ObjectMeta, namespace); err != nil {
			return err
		}
		count, err := countOf(job)
		if err != nil {
			return err
		}
		if err := a.take(count, count, job); err != nil {
			return fmt.Errorf("job %s: spec.parallelism %d: %w", job.Name, count, err)
		}
		a.Pods = append(a.Pods, podsOf(job, count)...)
		return nil
	case "apps/v1 Deployment":
		d := &appsv1.Deployment{}
		return a.addReplicas(text, d, is, &d.ObjectMeta, namespace, func() (*int32, error) { return d.Spec.Replicas, nil },
			func(count int) []*v1.Pod { return podsOfDeployment(d, count) })
	case "apps/v1 StatefulSet":
		s := &appsv1.StatefulSet{}
		return a.addReplicas(text, s, is, &s.ObjectMeta, namespace, func() (*int32, error) {
			if len(s.Spec.VolumeClaimTemplates) > 0 {
				return nil, errClaims
			}
			return s.Spec.Replicas, nil
		}, func(count int) []*v1.Pod { return podsOfStatefulSet(s, count) })
	}
	return fmt.Errorf("apiVersion %q, kind %q: want a Pod of v1, a Job of batch/v1, a Deployment or StatefulSet of apps/v1, a PodGroup of %s, or a List of them",
		is.APIVersion, is.Kind, GroupKind.APIVersion)
}

// addReplicas adds the pods of an object that runs so many of one template.
func (a *Asked) addReplicas(text []byte, into any, is *metav1.TypeMeta, of *metav1.ObjectMeta, namespace string, replicas func() (*int32, error), pods func(count int) []*v1.Pod) error {
	if err := strictly(text, into, is, of, namespace); err != nil {
		return err
	}
	asked, err := replicas()
	if err != nil {
		return fmt.Errorf("%s %s: %w", is.Kind, of.Name, err)
	}
	count, err := replicasOf(asked)
	if err != nil {
		return fmt.Errorf("%s %s: %w", is.Kind, of.Name, err)
	}
	if err := a.take(count, count, into); err != nil {
		return fmt.Errorf("%s %s: spec.replicas %d: %w", is.Kind, of.Name, count, err)
	}
	a.Pods = append(a.Pods, pods(count)...)
	return nil
}

func (a *Asked) addList(text []byte, namespace string) error {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for i, item := range list.Items {
		var is metav1.TypeMeta
		if err := json.Unmarshal(item, &is); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
		if is.Kind == "List" {
			return fmt.Errorf("items[%d].kind: a List is no item of a List", i) // each level would be read again
		}
		if err := a.add(item, &is, namespace); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	return nil
}

// take counts so many pods, and so many copies of an object, before they are made.
func (a *Asked) take(pods, copies int, obj any) error {
	if n := len(a.Pods) + pods; n > MaxAsked {
		return fmt.Errorf("%d pods: want at most %d in all", n, MaxAsked)
	}
	if a.memory += copies * memoryOf(reflect.ValueOf(obj)); a.memory > maxMemory {
		return fmt.Errorf("all that is asked for takes more than %d MiB of memory", maxMemory>>20)
	}
	return nil
}

// Encode writes what is asked for as ReadAsked reads it: one document each.
func (a *Asked) Encode() ([]byte, error) {
	var out bytes.Buffer
	add := func(kind *Kind, obj any) error {
		text, err := json.Marshal(obj)
		if err != nil {
			return fmt.Errorf("writing a %s: %w", kind.Kind, err)
		}
		fmt.Fprintf(&out, "---\n%s\n", WithKind(kind, text))
		return nil
	}
	for _, g := range a.Groups {
		if err := add(GroupKind, g); err != nil {
			return nil, err
		}
	}
	for _, pod := range a.Pods {
		if err := add(PodKind, pod); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// strictly decodes an object and sees that it has a name and a namespace.
func strictly(text []byte, into any, is *metav1.TypeMeta, meta *metav1.ObjectMeta, namespace string) error {
	var loose named
	if err := yaml.Unmarshal(text, &loose); err != nil {
		return fmt.Errorf("%s: %w", is.Kind, err)
	}
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return fmt.Errorf("%s %s: %w", is.Kind, loose.Metadata.Name, err)
	}
	if n := bytes.Count(asJSON, []byte(",")); n > maxValues {
		return fmt.Errorf("%s %s: it has more than %d values", is.Kind, loose.Metadata.Name, maxValues)
	}
	unknown, err := kjson.UnmarshalStrict(asJSON, into) // it names the path of a field
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("%s: %s", mistyped.Field, fieldpath.Words(mistyped, nil))
	}
	if err = errors.Join(append(unknown, err)...); err != nil {
		return fmt.Errorf("%s %s: %w", is.Kind, loose.Metadata.Name, err)
	}
	if meta.Name == "" && meta.GenerateName != "" {
		meta.Name = meta.GenerateName + "what-if"
	}
	if meta.Name == "" {
		return fmt.Errorf("%s: metadata.name: missing", is.Kind)
	}
	if meta.Namespace == "" {
		meta.Namespace = namespace
	}
	return nil
}

func (a *Asked) check() error {
	if len(a.Pods) == 0 {
		return errors.New("there is no pod")
	}
	seen := map[string]bool{}
	for _, pod := range a.Pods {
		name := pod.Namespace + "/" + pod.Name
		switch {
		case seen[name]:
			return fmt.Errorf("pod %s is there twice", name)
		case pod.Spec.NodeName != "":
			return fmt.Errorf("pod %s: spec.nodeName %q: no scheduler is asked for such a pod", name, pod.Spec.NodeName)
		case len(pod.Spec.Containers) == 0:
			return fmt.Errorf("pod %s: spec.containers: missing", name)
		}
		seen[name] = true
	}
	return nil
}
