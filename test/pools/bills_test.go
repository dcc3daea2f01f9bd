// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// sessionSeen is the time in which a pod held its devices, as the recorder observed it.
type sessionSeen struct {
	tenant, pod string
	devices     int64
	start       time.Time // zero if no status has it
	finished    time.Time // of its container
	forced      time.Time // deletion without grace, before its container had finished
}

// endedAt reports whether a session may have this end: the end of the container, or the deletion of the
// pod without grace, after which only finalizers keep it. A pod that was gone without either ends at the
// time of that observation, which may be any.
func (x *sessionSeen) endedAt(end time.Time) bool {
	nobodySaid := x.finished.IsZero() && x.forced.IsZero()
	return nobodySaid || end.Equal(x.finished) || end.Equal(x.forced)
}

func (x *sessionSeen) text() string {
	at := func(t time.Time) string { return t.UTC().Format(time.TimeOnly) }
	return fmt.Sprintf("pod %s of %s had %d devices from %s to %s, deleted without grace at %s", x.pod, x.tenant, x.devices, at(x.start), at(x.finished), at(x.forced))
}

func (a *account) seeSession(pod *v1.Pod) {
	devices := devicesOf(&pod.Spec)
	if pod.Spec.NodeName == "" || devices == 0 {
		return
	}
	now := sessionSeen{tenant: pod.Namespace, pod: pod.Name, devices: devices, finished: a.sessions[pod.UID].finished, forced: a.sessions[pod.UID].forced}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			now.start = c.LastTransitionTime.Time
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if end := c.State.Terminated; end != nil {
			now.finished = end.FinishedAt.Time
		}
	}
	if pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 && now.finished.IsZero() {
		now.forced = pod.DeletionTimestamp.Time
	}
	a.sessions[pod.UID] = now
}

// accounts creates an account for each tenant, with a price book in which a second of a device costs some
// cents.
func (s *scenario) accounts(t *testing.T, tenants ...string) {
	t.Helper()
	s.yaml(t, `apiVersion: pool.nvtopo.dev/v1alpha1
kind: PriceBook
metadata: {name: POOL}
spec: {currency: USD, prices: [{resource: nvidia.com/gpu, pricePerHour: "777.77"}], minPeriodSeconds: 0}`)
	for _, tenant := range tenants {
		s.yaml(t, fmt.Sprintf(`apiVersion: pool.nvtopo.dev/v1alpha1
kind: TenantAccount
metadata: {name: %s, annotations: {pool.nvtopo.dev/price-book: POOL}}
spec: {}`, s.tenant(tenant)))
	}
}

// billed checks, once the tenants have no pods, that each pod that the recorder ever saw bound has one
// record, of its devices, from its binding to its end, and that each account is billed exactly their
// cost. ordered: the recorder missed no change.
func (s *scenario) billed(t *testing.T, ordered bool, tenants ...string) {
	t.Helper()
	for _, tenant := range tenants {
		records := s.endedRecords(t, tenant)
		seen, met := s.sessionsSeen(tenant), map[types.UID]bool{}
		cents := int64(0)
		for i := range records {
			r := &records[i]
			x, known := seen[r.Spec.PodUID]
			switch {
			case met[r.Spec.PodUID]:
				testkit.Violation(t, "there are two records of%s", tellSessions(records[i:i+1]))
			case known && !x.recorded(t, r):
				testkit.Violation(t, "%s; its record is%s", x.text(), tellSessions(records[i:i+1]))
			case !known && ordered:
				testkit.Violation(t, "no pod was bound of%s", tellSessions(records[i:i+1]))
			}
			met[r.Spec.PodUID] = true
			cents += (2*quantity(t, r)*(r.Status.End.Unix()-r.Spec.Start.Unix())*killedCents + 3600) / (2 * 3600)
		}
		for uid, x := range seen {
			if !met[uid] {
				testkit.Violation(t, "there is no record: %s", x.text())
			}
		}
		want := fmt.Sprintf("%d.%02d", cents/100, cents%100)
		s.waitFor(t, "tenant "+tenant+" is billed "+want, func(ctx context.Context) (bool, string) {
			var account poolv1alpha1.TenantAccount
			err := s.Get(ctx, client.ObjectKey{Name: s.tenant(tenant)}, &account)
			return err == nil && string(account.Status.Billed) == want, fmt.Sprint(err, account.Status)
		})
		t.Logf("tenant %s: %d sessions cost %s", tenant, len(records), want)
	}
}

// recorded reports whether a record agrees with the observed session of its pod.
func (x *sessionSeen) recorded(t *testing.T, r *poolv1alpha1.UsageRecord) bool {
	t.Helper()
	start, end := r.Spec.Start.Time, r.Status.End.Time
	return x.devices == quantity(t, r) && (x.start.IsZero() || x.start.Equal(start)) && x.endedAt(end) && !end.Before(start) && !end.After(time.Now())
}

// quantity returns the number of devices of a record.
func quantity(t *testing.T, r *poolv1alpha1.UsageRecord) (n int64) {
	t.Helper()
	if _, err := fmt.Sscan(string(r.Spec.Quantity), &n); err != nil {
		t.Fatalf("record %s: quantity %q: %v", r.Name, r.Spec.Quantity, err)
	}
	return n
}

// endedRecords returns a tenant's records, once the recorder has no pod of it and all have ended.
func (s *scenario) endedRecords(t *testing.T, tenant string) (records []poolv1alpha1.UsageRecord) {
	t.Helper()
	s.waitFor(t, "all sessions of "+tenant+" have ended", func(ctx context.Context) (bool, string) {
		var err error
		if records, err = s.sessions(ctx, s.tenant(tenant)); err != nil {
			return false, err.Error()
		}
		c := s.counts(tenant) // the recorder may lag behind the API server
		return c.running+c.pending == 0 && allEnded(len(records))(records), fmt.Sprintf("%+v, %s", c, tellSessions(records))
	})
	return records
}

// sessionsSeen returns the observed sessions of a tenant, by the pod.
func (s *scenario) sessionsSeen(tenant string) map[types.UID]sessionSeen {
	seen := map[types.UID]sessionSeen{}
	s.recorder.read(s.name, func(a *account) {
		for uid, x := range a.sessions {
			if x.tenant == s.tenant(tenant) {
				seen[uid] = x
			}
		}
	})
	return seen
}
