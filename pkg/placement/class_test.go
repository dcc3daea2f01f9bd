// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

func demandOf(t *testing.T, pod *v1.Pod) *Demand {
	t.Helper()
	r, err := podrequest.Parse(pod, &podrequest.Options{Resources: []string{"nvidia.com/gpu"}, Supported: podrequest.AllPolicies()})
	if err != nil {
		t.Fatal(err)
	}
	return &Demand{Request: r}
}

func bytesOf(text string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)}
}

// classFields are the fields in which pods can differ. A field with a change makes two classes. Any other
// has the reason why it makes none.
var classFields = map[reflect.Type]map[string]any{
	reflect.TypeFor[v1.PodSpec](): {
		"NodeSelector":  func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} },
		"Affinity":      func(p *v1.Pod) { p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}} },
		"Tolerations":   func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: "a"}} },
		"SchedulerName": func(p *v1.Pod) { p.Spec.SchedulerName = "other" },
		"Overhead":      func(p *v1.Pod) { p.Spec.Overhead = bytesOf("1Mi") },
		"Resources":     func(p *v1.Pod) { p.Spec.Resources = &v1.ResourceRequirements{Requests: bytesOf("1Gi")} },
		"Priority":      func(p *v1.Pod) { p.Spec.Priority = new(int32(1)) },
		"TopologySpreadConstraints": func(p *v1.Pod) {
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1}}
		},
		"Containers":     func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, v1.Container{}) },
		"InitContainers": func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{{}} },

		"Volumes":                       "what they bind a pod to is asked apart, by claim",
		"ResourceClaims":                "as volumes",
		"EphemeralContainers":           "they come to pods that run",
		"RestartPolicy":                 "for kubelet",
		"TerminationGracePeriodSeconds": "for kubelet",
		"ActiveDeadlineSeconds":         "for kubelet",
		"DNSPolicy":                     "for kubelet",
		"DNSConfig":                     "for kubelet",
		"ServiceAccountName":            "for kubelet",
		"DeprecatedServiceAccount":      "for kubelet",
		"AutomountServiceAccountToken":  "for kubelet",
		"NodeName":                      "a pod with one is not placed",
		"HostNetwork":                   "the API server gives its ports to the node",
		"HostPID":                       "for kubelet",
		"HostIPC":                       "for kubelet",
		"ShareProcessNamespace":         "for kubelet",
		"SecurityContext":               "for kubelet",
		"ImagePullSecrets":              "for kubelet",
		"Hostname":                      "for kubelet",
		"Subdomain":                     "for kubelet",
		"SetHostnameAsFQDN":             "for kubelet",
		"HostnameOverride":              "for kubelet",
		"HostAliases":                   "for kubelet",
		"PriorityClassName":             "the API server sets Priority by it",
		"ReadinessGates":                "for kubelet",
		"RuntimeClassName":              "the API server sets Overhead, NodeSelector and Tolerations by it",
		"EnableServiceLinks":            "for kubelet",
		"PreemptionPolicy":              "it decides about other pods, not about nodes",
		"OS":                            "for kubelet",
		"HostUsers":                     "for kubelet",
		"SchedulingGates":               "a pod with one is not placed",
		"WorkloadRef":                   "of another scheduler of gangs",
		"SchedulingGroup":               "of another scheduler of gangs",
	},
	reflect.TypeFor[v1.Container](): {
		"Name": func(p *v1.Pod) { p.Spec.Containers[0].Name = "other" },
		"Resources": func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"example.com/card": resource.MustParse("1")}
		},
		"Ports":         func(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} },
		"RestartPolicy": func(p *v1.Pod) { p.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways) },

		"RestartPolicyRules":       "for kubelet",
		"ResizePolicy":             "for kubelet",
		"Image":                    "ImageLocality only scores",
		"Command":                  "for kubelet",
		"Args":                     "for kubelet",
		"WorkingDir":               "for kubelet",
		"EnvFrom":                  "for kubelet",
		"Env":                      "for kubelet",
		"VolumeMounts":             "for kubelet",
		"VolumeDevices":            "for kubelet",
		"LivenessProbe":            "for kubelet",
		"ReadinessProbe":           "for kubelet",
		"StartupProbe":             "for kubelet",
		"Lifecycle":                "for kubelet",
		"TerminationMessagePath":   "for kubelet",
		"TerminationMessagePolicy": "for kubelet",
		"ImagePullPolicy":          "for kubelet",
		"SecurityContext":          "for kubelet",
		"Stdin":                    "for kubelet",
		"StdinOnce":                "for kubelet",
		"TTY":                      "for kubelet",
	},
}

// TestClassFields: each field of a pod either makes two classes or has a reason why it does not. A field
// that is new in Kubernetes has neither.
func TestClassFields(t *testing.T) {
	base := func() *v1.Pod {
		pod, cards := schedtest.Pod("p").GPUs(1).Obj(), v1.ResourceRequirements{Requests: v1.ResourceList{"example.com/card": resource.MustParse("1")}}
		pod.Spec.InitContainers = []v1.Container{{Resources: cards}}
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "cards", Resources: cards})
		return pod
	}
	before := classKey(base(), demandOf(t, base()))
	for typ, fields := range classFields {
		for field := range typ.Fields() {
			name := field.Name
			change, ok := fields[name].(func(*v1.Pod))
			if !ok && fields[name] == nil {
				t.Errorf("%s.%s: nothing is known of it; does a node's answer depend on it?", typ.Name(), name)
			}
			if !ok {
				continue
			}
			pod := base()
			change(pod)
			if classKey(pod, demandOf(t, pod)) == before {
				t.Errorf("%s.%s makes no class of its own", typ.Name(), name)
			}
		}
	}
}

// TestClassLabels: only labels that keep two pods off one node decide about the class.
func TestClassLabels(t *testing.T) {
	key := func(labels map[string]string) string {
		pod := schedtest.Pod("p").Obj()
		pod.Labels = labels
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "g"}},
		}}}}
		return classKey(pod, demandOf(t, pod))
	}
	g, index, h := key(map[string]string{"app": "g"}), key(map[string]string{"app": "g", "index": "1"}), key(map[string]string{"app": "h"})
	if g != index || g == h {
		t.Errorf("app g is of the class of app g and index 1: %t, and of app h: %t; want true and false", g == index, g == h)
	}
}

// TestSameClass: classes are compared as Kubernetes compares objects: the comparison written by hand
// equals reflection, for each two of pods that differ in one thing, or write the same in two ways. Pods of
// one class have one key.
func TestSameClass(t *testing.T) {
	quantities := func(cpu, gpus string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), "nvidia.com/gpu": resource.MustParse(gpus)}
	}
	variants := map[string]func(*v1.PodSpec){
		"as it is":              func(*v1.PodSpec) {},
		"empty, not nil":        func(s *v1.PodSpec) { s.NodeSelector, s.Tolerations = map[string]string{}, []v1.Toleration{} },
		"a node selector":       func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"a": "b"} },
		"another node selector": func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"a": ""} },
		"a toleration":          func(s *v1.PodSpec) { s.Tolerations = []v1.Toleration{{Key: "a", Effect: v1.TaintEffectNoExecute}} },
		"for some time": func(s *v1.PodSpec) {
			s.Tolerations = []v1.Toleration{{Key: "a", Effect: v1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))}}
		},
		"for the same time": func(s *v1.PodSpec) {
			s.Tolerations = []v1.Toleration{{Key: "a", Effect: v1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))}}
		},
		"for no time": func(s *v1.PodSpec) {
			s.Tolerations = []v1.Toleration{{Key: "a", Effect: v1.TaintEffectNoExecute, TolerationSeconds: new(int64)}}
		},
		"another value":               func(s *v1.PodSpec) { s.Tolerations = []v1.Toleration{{Key: "a", Value: "b"}} },
		"another operator":            func(s *v1.PodSpec) { s.Tolerations = []v1.Toleration{{Key: "a", Operator: v1.TolerationOpExists}} },
		"affinity to none":            func(s *v1.PodSpec) { s.Affinity = &v1.Affinity{} },
		"affinity to nodes":           func(s *v1.PodSpec) { s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}} },
		"spread":                      func(s *v1.PodSpec) { s.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1}} },
		"spread wider":                func(s *v1.PodSpec) { s.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 2}} },
		"overhead":                    func(s *v1.PodSpec) { s.Overhead = quantities("1", "0") },
		"overhead, written otherwise": func(s *v1.PodSpec) { s.Overhead = quantities("1000m", "0") },
		"resources of the pod":        func(s *v1.PodSpec) { s.Resources = &v1.ResourceRequirements{} },
		"requests":                    func(s *v1.PodSpec) { s.Containers[0].Resources.Requests = quantities("2", "4") },
		"requests, written otherwise": func(s *v1.PodSpec) { s.Containers[0].Resources.Requests = quantities("2000m", "4") },
		"requests of one thing": func(s *v1.PodSpec) {
			s.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
		},
		"requests of another": func(s *v1.PodSpec) {
			s.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("2")}
		},
		"requests of all, together":    func(s *v1.PodSpec) { s.Resources = &v1.ResourceRequirements{Requests: quantities("2", "4")} },
		"the same, written otherwise":  func(s *v1.PodSpec) { s.Resources = &v1.ResourceRequirements{Requests: quantities("2000m", "4")} },
		"limits":                       func(s *v1.PodSpec) { s.Containers[0].Resources.Limits = quantities("2", "4") },
		"a claim":                      func(s *v1.PodSpec) { s.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "a"}} },
		"another request of the claim": func(s *v1.PodSpec) { s.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "a", Request: "b"}} },
		"a port":                       func(s *v1.PodSpec) { s.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} },
		"another port":                 func(s *v1.PodSpec) { s.Containers[0].Ports = []v1.ContainerPort{{HostPort: 81}} },
		"a port of an address":         func(s *v1.PodSpec) { s.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, HostIP: "10.0.0.1"}} },
		"a port of UDP": func(s *v1.PodSpec) {
			s.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, Protocol: v1.ProtocolUDP}}
		},
		"another container":    func(s *v1.PodSpec) { s.Containers = append(s.Containers, v1.Container{}) },
		"an initial container": func(s *v1.PodSpec) { s.InitContainers = []v1.Container{{}} },
		"an initial container's limit": func(s *v1.PodSpec) {
			s.InitContainers = []v1.Container{{Resources: v1.ResourceRequirements{Limits: quantities("2", "4")}}}
		},
		"an initial container that goes on": func(s *v1.PodSpec) {
			s.InitContainers = []v1.Container{{RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
		},
		"another scheduler":            func(s *v1.PodSpec) { s.SchedulerName = "other" },
		"an image, of no concern here": func(s *v1.PodSpec) { s.Containers[0].Image = "a" },
	}
	made := map[string]*v1.Pod{}
	for name, change := range variants {
		made[name] = schedtest.Pod("p").Obj()
		change(&made[name].Spec)
	}
	byReflection := func(containers []v1.Container) (of []any) {
		for i := range containers {
			of = append(of, containers[i].Resources, containers[i].Ports, containers[i].RestartPolicy)
		}
		return of
	}
	of := func(p *v1.Pod) []any {
		return []any{p.Spec.SchedulerName, decidedBy(p), byReflection(p.Spec.Containers), byReflection(p.Spec.InitContainers)}
	}
	alike := 0
	for one, a := range made {
		for other, b := range made {
			want := equality.Semantic.DeepEqual(of(a), of(b))
			if got := SameClass(a, b); got != want {
				t.Errorf("%q and %q are the same: %t, want %t", one, other, got, want)
			}
			if want && one != other {
				alike++
			}
			if x, y := demandOf(t, a), demandOf(t, b); want && x.Signature() == y.Signature() && classKey(a, x) != classKey(b, y) {
				t.Errorf("%q and %q are of one class and have two keys", one, other)
			}
		}
	}
	if alike != 14 {
		t.Errorf("%d ordered pairs of different names are alike, want 14: those that write the same in two ways", alike)
	}
	// Reflection would see a new field.
	if fields := reflect.TypeFor[decided]().NumField(); fields != 6 {
		t.Errorf("decided has %d fields, and 6 are compared", fields)
	}
	if fields := reflect.TypeFor[v1.ResourceRequirements]().NumField(); fields != 3 {
		t.Errorf("ResourceRequirements has %d fields, and 3 are compared", fields)
	}
}
