// SPDX-License-Identifier: Apache-2.0

package remotesession

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func aSession() *v1alpha1.RemoteGPUSession {
	return &v1alpha1.RemoteGPUSession{
		ObjectMeta: metav1.ObjectMeta{Name: "notebook", Namespace: "team", Generation: 1},
		Spec: v1alpha1.RemoteGPUSessionSpec{
			Pool: "p", GPUs: 1, TTLSeconds: 3600, Operations: []v1alpha1.RemoteOperation{v1alpha1.ModelForward},
			Server: v1alpha1.RemoteServer{Image: "example.com/server", Port: 8080},
		},
	}
}

// aView returns a session whose pod is ready.
func aView() *view {
	return &view{
		session: aSession(), tenant: "a", image: "gate",
		pool: &v1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.ComputePoolSpec{PoolType: v1alpha1.PoolGPU}},
		job:  &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "notebook-remote"}},
		pods: []v1.Pod{{Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}}},
	}
}

// startedAt makes a session one that was first ready at a time.
func startedAt(at time.Time) func(*view) {
	return func(v *view) {
		v.session.Status.Phase = v1alpha1.SessionReady
		v.session.Status.Conditions = []metav1.Condition{{
			Type: ConditionStarted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Time{Time: at},
		}}
	}
}

func TestDecide(t *testing.T) {
	none := func(v *view) { v.job, v.pods = nil, nil }
	with := func(changes ...func(*view)) *view {
		v := aView()
		for _, c := range changes {
			c(v)
		}
		return v
	}
	jobIs := func(kind batchv1.JobConditionType) func(*view) {
		return func(v *view) {
			v.job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: v1.ConditionTrue, Message: "said so"}}
		}
	}
	tests := map[string]struct {
		view       *view
		wantPhase  v1alpha1.SessionPhase
		wantReason string
		wantDevice v1.ResourceName
		wantOver   bool
		wantAfter  time.Duration
		wantEnd    time.Time
	}{
		"it is new":                      {view: with(none), wantPhase: "Pending", wantReason: "WaitingForQuota", wantDevice: "nvidia.com/gpu"},
		"it is nobody's":                 {view: with(none, func(v *view) { v.tenant = "" }), wantPhase: "Pending", wantReason: "NoTenant", wantAfter: askAgain},
		"there is no pool":               {view: with(none, func(v *view) { v.pool = nil }), wantPhase: "Pending", wantReason: "PoolNotFound", wantAfter: askAgain},
		"there are no gates":             {view: with(none, func(v *view) { v.image = "" }), wantPhase: "Pending", wantReason: "NoGate", wantAfter: askAgain},
		"its name is taken":              {view: with(none, func(v *view) { v.taken = "job x" }), wantPhase: "Pending", wantReason: "NameTaken", wantAfter: askAgain},
		"the pool has NPUs of some kind": {view: with(none, func(v *view) { v.pool.Spec.PoolType = "npu" }), wantPhase: "Pending", wantReason: "NoDevice", wantAfter: askAgain},
		"it waits for quota":             {view: with(func(v *view) { v.job.Spec.Suspend, v.pods = new(true), nil }), wantPhase: "Pending", wantReason: "WaitingForQuota"},
		"it waits for its server":        {view: with(func(v *view) { v.pods[0].Status.Conditions = nil }), wantPhase: "Pending", wantReason: "WaitingForServer"},
		"a pod that goes does not serve": {view: with(func(v *view) { v.pods[0].DeletionTimestamp = &metav1.Time{Time: noon} }), wantPhase: "Pending", wantReason: "WaitingForServer"},
		"it is ready for the first time": {view: with(), wantPhase: "Ready", wantReason: "Serves", wantAfter: lookAgain, wantEnd: noon.Add(time.Hour)},
		"it is ready still":              {view: with(startedAt(noon.Add(-time.Minute))), wantPhase: "Ready", wantReason: "Serves", wantAfter: lookAgain, wantEnd: noon.Add(59 * time.Minute)},
		"it was evicted; its time goes on": {
			view:      with(startedAt(noon.Add(-time.Minute)), func(v *view) { v.job.Spec.Suspend, v.pods = new(true), nil }),
			wantPhase: "Pending", wantReason: "WaitingForQuota", wantAfter: 59 * time.Minute, wantEnd: noon.Add(59 * time.Minute),
		},
		"it was lengthened": {
			view:      with(startedAt(noon.Add(-time.Hour)), func(v *view) { v.session.Spec.TTLSeconds = 7200 }),
			wantPhase: "Ready", wantReason: "Serves", wantAfter: lookAgain, wantEnd: noon.Add(time.Hour),
		},
		"its time is over": {
			view: with(startedAt(noon.Add(-time.Hour))), wantPhase: "Expired", wantReason: "Expired", wantOver: true, wantEnd: noon,
		},
		"its time is over, and it has no job": {
			view: with(none, startedAt(noon.Add(-2*time.Hour))), wantPhase: "Expired", wantReason: "Expired", wantOver: true, wantEnd: noon.Add(-time.Hour),
		},
		"it was lengthened too late": {
			view:      with(none, startedAt(noon.Add(-time.Hour)), func(v *view) { v.session.Status.Phase, v.session.Spec.TTLSeconds = "Expired", 7200 }),
			wantPhase: "Expired", wantOver: true,
		},
		"the server failed":                    {view: with(jobIs(batchv1.JobFailed)), wantPhase: "Failed", wantReason: "ServerEnded", wantOver: true},
		"the server ended well":                {view: with(jobIs(batchv1.JobComplete)), wantPhase: "Failed", wantReason: "ServerEnded", wantOver: true},
		"it failed, and nothing is begun anew": {view: with(none, func(v *view) { v.session.Status.Phase = "Failed" }), wantPhase: "Failed", wantOver: true},
		"a pool that is gone ends nothing":     {view: with(func(v *view) { v.pool, v.tenant = nil, "" }), wantPhase: "Ready", wantReason: "Serves", wantAfter: lookAgain, wantEnd: noon.Add(time.Hour)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := decide(tc.view, noon)
			reason := ""
			if c := apimeta.FindStatusCondition(d.status.Conditions, v1alpha1.ConditionReady); c != nil {
				reason = c.Reason
				if (c.Status == metav1.ConditionTrue) != (d.status.Phase == v1alpha1.SessionReady) || c.Message == "" {
					t.Errorf("phase %s with %+v", d.status.Phase, c)
				}
			}
			if d.status.Phase != tc.wantPhase || reason != tc.wantReason || d.device != tc.wantDevice || d.over != tc.wantOver || d.after != tc.wantAfter {
				t.Errorf("got phase %s, reason %s, device %q, over %v, after %v, want %s, %s, %q, %v, %v", d.status.Phase, reason, d.device, d.over, d.after,
					tc.wantPhase, tc.wantReason, tc.wantDevice, tc.wantOver, tc.wantAfter)
			}
			if end := d.status.ExpiresAt; end == nil != tc.wantEnd.IsZero() || end != nil && !end.Time.Equal(tc.wantEnd) {
				t.Errorf("got end %v, want %v", end, tc.wantEnd)
			}
			if d.over && (d.status.Endpoint != "" || d.status.TokenSecret != nil) {
				t.Errorf("a session that has ended has endpoint %q and token %v", d.status.Endpoint, d.status.TokenSecret)
			}
		})
	}
}

func TestDevice(t *testing.T) {
	divided := func(v v1alpha1.Virtualization) v1alpha1.ComputePoolSpec {
		v.Enabled = true
		return v1alpha1.ComputePoolSpec{PoolType: v1alpha1.PoolGPU, Virtualization: &v}
	}
	tests := map[string]struct {
		spec v1alpha1.ComputePoolSpec
		gpus int32
		want v1.ResourceName // empty: refused
	}{
		"GPUs":                    {spec: v1alpha1.ComputePoolSpec{PoolType: "gpu"}, gpus: 2, want: "nvidia.com/gpu"},
		"the first that counts":   {spec: v1alpha1.ComputePoolSpec{PoolType: "gpu", Resources: []string{"amd.com/gpu", "x/y"}}, gpus: 1, want: "amd.com/gpu"},
		"NPUs of some kind":       {spec: v1alpha1.ComputePoolSpec{PoolType: "npu"}, gpus: 1},
		"a turn":                  {spec: divided(v1alpha1.Virtualization{Strategy: "time-slicing", Replicas: 4}), gpus: 1, want: "nvidia.com/gpu.shared"},
		"two turns":               {spec: divided(v1alpha1.Virtualization{Strategy: "time-slicing", Replicas: 4}), gpus: 2},
		"slices":                  {spec: divided(v1alpha1.Virtualization{Strategy: "mig", Profile: "all-1g.10gb"}), gpus: 3, want: "nvidia.com/mig-1g.10gb"},
		"slices of several sizes": {spec: divided(v1alpha1.Virtualization{Strategy: "mig", Profile: "all-balanced"}), gpus: 1},
		"no profile":              {spec: divided(v1alpha1.Virtualization{Strategy: "mig"}), gpus: 1, want: "nvidia.com/gpu"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, fault := device(&v1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: tc.spec}, tc.gpus)
			if got != tc.want || (fault == "") != (tc.want != "") {
				t.Errorf("got %q, %q; want %q", got, fault, tc.want)
			}
		})
	}
}

// TestGateSidecar: the gate is a sidecar of the server.
func TestGateSidecar(t *testing.T) {
	s := aSession()
	s.Spec.Server.Port = gatePort
	j := job(s, "nvidia.com/gpu", "gate")
	server, g := j.Spec.Template.Spec.Containers[0], j.Spec.Template.Spec.InitContainers[0]
	if server.Ports[0].ContainerPort == g.Ports[0].ContainerPort {
		t.Errorf("both have port %d", g.Ports[0].ContainerPort)
	}
	m := meta(s, metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job")))
	if got := service(s, m).Spec.Ports[0].TargetPort.IntVal; got != g.Ports[0].ContainerPort {
		t.Errorf("the Service leads to port %d, the gate has %d", got, g.Ports[0].ContainerPort)
	}
	if got := network(s, m).Spec.Ingress[0].Ports[0].Port.IntVal; got != g.Ports[0].ContainerPort {
		t.Errorf("the NetworkPolicy lets in to port %d, the gate has %d", got, g.Ports[0].ContainerPort)
	}
	if len(server.VolumeMounts) > 0 || len(server.Env) > 0 {
		t.Error("the server has the token")
	}
	if a, b := newToken(), newToken(); a == b || len(a) != 43 {
		t.Errorf("tokens %q and %q", a, b)
	}
}

// TestHoldsQuota: quota that Kueue has taken back, or never gave, is not waited
// for.
func TestHoldsQuota(t *testing.T) {
	condition := func(kind batchv1.JobConditionType, status v1.ConditionStatus) batchv1.Job {
		return batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: kind, Status: status}}}}
	}
	for name, tc := range map[string]struct {
		job  batchv1.Job
		want bool
	}{
		"it runs":                      {batchv1.Job{Spec: batchv1.JobSpec{Suspend: new(false)}}, true},
		"it is suspended":              {batchv1.Job{Spec: batchv1.JobSpec{Suspend: new(true)}}, false},
		"its pod is yet to end":        {condition(batchv1.JobFailureTarget, v1.ConditionTrue), true},
		"it ended":                     {condition(batchv1.JobFailed, v1.ConditionTrue), false},
		"it ended well":                {condition(batchv1.JobComplete, v1.ConditionTrue), false},
		"a condition that is not true": {condition(batchv1.JobFailed, v1.ConditionFalse), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := holdsQuota(&tc.job); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
