// SPDX-License-Identifier: Apache-2.0

package remotesession

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nvtopo/nvtopo/internal/release"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/remotesession/gate"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

const (
	// TokenKey is the key of the token in the session's Secret.
	TokenKey = "token"

	gateContainer = "gate"
	gatePort      = 9000
	otherGatePort = 9001 // where the server has the first one
	servicePort   = 80
	tokenFolder   = "/etc/nvtopo/session"
	tokenVolume   = "token"
	// tokenBytes is the number of random bytes in a token.
	tokenBytes = 32
	// gateUser is an arbitrary user ID that is not root.
	gateUser = 65532
	// retries is how often a failing server is restarted, by a new pod. Evictions are not counted.
	retries = 3
	// endNow is the activeDeadlineSeconds, from its start, of a Job to stop: the API requires a positive
	// number.
	endNow = 1
)

// Name is the name of the Job, Service, Secret and NetworkPolicy of a session. An ElasticJob of the
// session's name has a Service of its own.
func Name(session string) string { return session + "-remote" }

// Endpoint is the URL of a session within the cluster.
func Endpoint(s *v1alpha1.RemoteGPUSession) string {
	return "http://" + Name(s.Name) + "." + s.Namespace + ".svc"
}

// newToken returns a random token.
func newToken() string {
	b := make([]byte, tokenBytes)
	rand.Read(b) // never fails: crypto/rand
	return base64.RawURLEncoding.EncodeToString(b)
}

// device returns the resource for a session of the pool, or why the pool has none for it.
func device(pool *v1alpha1.ComputePool, gpus int32) (name v1.ResourceName, fault string) {
	unit, sliced := units.Sliced(pool.Spec.Virtualization)
	switch {
	case sliced && unit.Resource == units.MilliGPU:
		slice := "nvidia.com/mig-" + strings.TrimPrefix(pool.Spec.Virtualization.Profile, "all-")
		if _, known := units.MilliOf(slice); !known {
			return "", fmt.Sprintf("pool: the slices of %s are of profile %s, which does not say of what size a session's are",
				pool.Name, pool.Spec.Virtualization.Profile)
		}
		return v1.ResourceName(slice), ""
	case sliced && gpus > 1:
		return "", fmt.Sprintf("gpus: %d, and in pool %s containers take turns on a GPU: two turns may be on one, so that only 1 is allowed", gpus, pool.Name)
	case sliced:
		return v1.ResourceName(unit.Resource), ""
	case len(pool.Spec.Resources) > 0:
		return v1.ResourceName(pool.Spec.Resources[0]), ""
	case pool.Spec.PoolType == v1alpha1.PoolNPU:
		return "", fmt.Sprintf("pool: %s has NPUs and does not say in resources which", pool.Name)
	}
	return units.WholeGPU, ""
}

func labels(s *v1alpha1.RemoteGPUSession) map[string]string {
	return map[string]string{names.LabelSession: s.Name, v1alpha1.LabelPool: s.Spec.Pool}
}

func meta(s *v1alpha1.RemoteGPUSession, owner *metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: Name(s.Name), Namespace: s.Namespace, Labels: labels(s), OwnerReferences: []metav1.OwnerReference{*owner}}
}

func secret(m metav1.ObjectMeta) *v1.Secret {
	return &v1.Secret{ObjectMeta: m, Type: v1.SecretTypeOpaque, StringData: map[string]string{TokenKey: newToken()}}
}

func service(s *v1alpha1.RemoteGPUSession, m metav1.ObjectMeta) *v1.Service {
	return &v1.Service{ObjectMeta: m, Spec: v1.ServiceSpec{
		Selector: map[string]string{names.LabelSession: s.Name},
		Ports:    []v1.ServicePort{{Name: "http", Port: servicePort, TargetPort: intstr.FromInt32(portOfGate(s))}},
	}}
}

// network returns the NetworkPolicy that blocks access past the gate to the server's own port, on
// clusters whose network enforces NetworkPolicies.
func network(s *v1alpha1.RemoteGPUSession, m metav1.ObjectMeta) *networkingv1.NetworkPolicy {
	port, tcp := intstr.FromInt32(portOfGate(s)), v1.ProtocolTCP // with the API server's defaults
	return &networkingv1.NetworkPolicy{ObjectMeta: m, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{names.LabelSession: s.Name}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}}}},
	}}
}

func portOfGate(s *v1alpha1.RemoteGPUSession) int32 {
	if s.Spec.Server.Port == gatePort {
		return otherGatePort
	}
	return gatePort
}

// job returns the Job of the session's one pod. Kueue starts it, and metering keeps the pod until its
// end is recorded.
func job(s *v1alpha1.RemoteGPUSession, resources v1.ResourceName, image string) *batchv1.Job {
	m := meta(s, metav1.NewControllerRef(s, v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.RemoteGPUSessionKind)))
	m.Labels[kueue.LabelQueue] = names.LocalQueue(s.Spec.Pool, s.Spec.Queue)
	return &batchv1.Job{ObjectMeta: m, Spec: batchv1.JobSpec{
		Suspend: new(true), Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(retries)),
		PodReplacementPolicy: new(batchv1.Failed),
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action: batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{
				Type: v1.DisruptionTarget, Status: v1.ConditionTrue,
			}},
		}}},
		Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels(s), Finalizers: []string{names.FinalizerMetering}},
			Spec:       podSpec(s, resources, image),
		},
	}}
}

func podSpec(s *v1alpha1.RemoteGPUSession, resources v1.ResourceName, image string) v1.PodSpec {
	devices := v1.ResourceList{resources: *resource.NewQuantity(int64(s.Spec.GPUs), resource.DecimalSI)}
	return v1.PodSpec{
		SchedulerName: release.Profile, RestartPolicy: v1.RestartPolicyNever,
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		SecurityContext: &v1.PodSecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}},
		// The gate is a sidecar, so that the pod ends when the server does.
		InitContainers: []v1.Container{gateOf(s, image)},
		Containers: []v1.Container{{
			Name: "server", Image: s.Spec.Server.Image, Args: s.Spec.Server.Args,
			Ports:           []v1.ContainerPort{{ContainerPort: s.Spec.Server.Port}},
			Resources:       v1.ResourceRequirements{Limits: devices},
			SecurityContext: &v1.SecurityContext{AllowPrivilegeEscalation: new(false)},
		}},
		Volumes: []v1.Volume{{Name: tokenVolume, VolumeSource: v1.VolumeSource{
			Secret: &v1.SecretVolumeSource{SecretName: Name(s.Name), Items: []v1.KeyToPath{{Key: TokenKey, Path: TokenKey}}},
		}}},
	}
}

// gateOf returns the gate's container. The pod is ready when its server is.
func gateOf(s *v1alpha1.RemoteGPUSession, image string) v1.Container {
	operations := make([]string, 0, len(s.Spec.Operations))
	for _, o := range s.Spec.Operations {
		operations = append(operations, string(o))
	}
	port := portOfGate(s)
	return v1.Container{
		Name: gateContainer, Image: image, RestartPolicy: new(v1.ContainerRestartPolicyAlways),
		Args: []string{
			"remote-gate", "--listen=:" + strconv.Itoa(int(port)), "--server=http://127.0.0.1:" + strconv.Itoa(int(s.Spec.Server.Port)),
			"--token-file=" + tokenFolder + "/" + TokenKey, "--operations=" + strings.Join(operations, ","),
		},
		Ports: []v1.ContainerPort{{Name: "gate", ContainerPort: port}},
		ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{
			HTTPGet: &v1.HTTPGetAction{Path: gate.ReadyPath, Port: intstr.FromInt32(port)},
		}},
		Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("512Mi")},
		},
		VolumeMounts: []v1.VolumeMount{{Name: tokenVolume, MountPath: tokenFolder, ReadOnly: true}},
		SecurityContext: &v1.SecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(gateUser)), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
			Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
		},
	}
}
