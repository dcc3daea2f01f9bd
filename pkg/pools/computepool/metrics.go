// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// A collector exports the numbers of the last reconciliation of each pool. Series of removed tenants and
// queues are missing from the next scrape.
type collector struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	pools map[string]*poolMetrics // guarded by mu
}

// poolMetrics is the numbers of one pool.
type poolMetrics struct {
	status v1alpha1.ComputePoolStatus
	usage  []usage
	oldest map[string]time.Time // creation or eviction time of each ClusterQueue's oldest waiting job; zero: none waits
}

// usage is the number of devices of one resource that a tenant holds; a part of a device is a fraction.
type usage struct {
	resource, tenant string
	devices          float64
}

var (
	descUsage = prometheus.NewDesc("compute_pool_usage",
		"Devices that a tenant's live pods hold on the nodes of a pool.", []string{"resource_type", "tenant_id", "pool"}, nil)
	descCapacity  = poolDesc("capacity", "Devices of a pool that count.")
	descReserved  = poolDesc("reserved", "Devices of a pool that no job gets.")
	descAllocated = poolDesc("allocated", "Devices of a pool that live pods hold.")
	descAvailable = poolDesc("available", "Devices of a pool that jobs could get now: free on nodes that take pods, and not reserved.")

	descLimit      = tenantDesc("limit", "The most that a tenant may hold of a pool.")
	descGuaranteed = tenantDesc("guaranteed", "What a tenant gets of a pool whenever it asks.")
	descPinned     = tenantDesc("pinned", "Devices of a tenant's jobs that must not be preempted.")

	descOldest = prometheus.NewDesc("compute_queue_oldest_pending_seconds",
		"For how long the oldest job of a ClusterQueue has waited for quota; 0 when none waits.", []string{"pool", "queue"}, nil)
)

func poolDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("compute_pool_"+name, help, []string{"pool"}, nil)
}

func tenantDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("compute_pool_tenant_"+name, help, []string{"pool", "tenant_id"}, nil)
}

func newCollector(c clock.PassiveClock) *collector {
	return &collector{clock: c, pools: map[string]*poolMetrics{}}
}

// Describe sends all descriptions.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descUsage, descCapacity, descReserved, descAllocated, descAvailable, descLimit, descGuaranteed, descPinned, descOldest,
	} {
		ch <- d
	}
}

// Collect sends the numbers of all pools.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	for pool, m := range c.pools {
		m.collect(pool, now, func(d *prometheus.Desc, value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
		})
	}
}

func (m *poolMetrics) collect(pool string, now time.Time, gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	s := &m.status
	gauge(descCapacity, float64(s.TotalCapacity), pool)
	gauge(descReserved, float64(s.ReservedCapacity), pool)
	gauge(descAllocated, float64(s.AllocatedCapacity), pool)
	gauge(descAvailable, float64(s.AvailableCapacity), pool)
	for _, u := range m.usage {
		gauge(descUsage, u.devices, u.resource, u.tenant, pool)
	}
	for i := range s.Shares {
		// A tenant's share includes its parts of queues, where it has a share.
		if share := &s.Shares[i]; share.Tenant != "" && share.Queue == "" {
			gauge(descLimit, float64(share.Limit), pool, share.Tenant)
			gauge(descGuaranteed, float64(share.Guaranteed), pool, share.Tenant)
			gauge(descPinned, float64(share.Pinned), pool, share.Tenant)
		}
	}
	for queue, since := range m.oldest {
		seconds := 0.0
		if !since.IsZero() {
			seconds = max(0, now.Sub(since).Seconds())
		}
		gauge(descOldest, seconds, pool, queue)
	}
}

func (c *collector) set(pool string, m *poolMetrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pools[pool] = m
}

func (c *collector) forget(pool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, pool)
}

// usageOf lists the devices that each tenant holds, by resource.
func usageOf(c *Capacity) []usage {
	var out []usage
	for i := range c.Devices {
		d := &c.Devices[i]
		resource := d.Unit.Resource
		if d.Unit.PerDevice > 1 { // parts exist only of whole GPUs
			resource = units.WholeGPU
		}
		for tenant, n := range d.ByTenant {
			out = append(out, usage{resource: resource, tenant: tenant, devices: float64(n) / float64(d.Unit.PerDevice)})
		}
	}
	return out
}

// oldestPending returns for each queue the time since which its oldest pending workload waits.
func oldestPending(l *Layout, namespaces map[string]string, workloads []*kueue.Workload) map[string]time.Time {
	out := map[string]time.Time{}
	for q := range l.all() {
		out[q.name] = time.Time{}
	}
	queueOf := l.byLocalQueue(namespaces)
	for _, w := range workloads {
		queue, ok := queueOf[w.Namespace+"/"+w.Spec.QueueName]
		if !ok || !waits(w) {
			continue
		}
		since := w.CreationTimestamp.Time
		if evicted := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted); evicted != nil {
			since = evicted.LastTransitionTime.Time
		}
		if oldest := out[queue]; oldest.IsZero() || since.Before(oldest) {
			out[queue] = since
		}
	}
	return out
}

func waits(w *kueue.Workload) bool {
	return w.Status.Admission == nil && (w.Spec.Active == nil || *w.Spec.Active) &&
		!meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished)
}
