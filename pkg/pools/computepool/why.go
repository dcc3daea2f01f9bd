// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"fmt"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/quota"
)

// Why is the reason why a non-preemptible job waits: a reason of package names, and a sentence with the
// numbers. The ElasticJob's conditions show both.
type Why struct{ Reason, Message string }

// String is the value of the annotation.
func (w Why) String() string { return w.Reason + ": " + w.Message }

// whySoon is the reason of a job whose quota is being set aside.
func whySoon() Why {
	return Why{names.ProtectedSoon, "the pool has room for the job and is setting its quota aside: it is let in as soon as Kueue has seen that"}
}

func whyNoQueue(queue string) Why {
	return Why{names.ProtectedNever, "ClusterQueue " + queue + " is no queue of the pool, or is leaving it: the job can never start there; make a new one in another queue"}
}

func whyNoDevices(c *Capacity) Why {
	resources := make([]string, 0, len(c.Devices))
	for i := range c.Devices {
		resources = append(resources, string(c.Devices[i].resource()))
	}
	return Why{names.ProtectedNever, "the job asks for no device of the pool, which gives out " + strings.Join(resources, ", ") +
		": it can never start; make a new one with one of these"}
}

// who is a share's name for messages, and the spec fields that bound it.
type who struct{ name, fields string }

func nameOf(q *queue) who {
	switch {
	case q.queue == "":
		return tenantNamed(q.tenant)
	case q.tenant == "":
		return queueNamed(q.queue)
	}
	return who{"tenant " + q.tenant + " in queue " + q.queue, "protectedLimit in quotas, or protectedCapacity in queues"}
}

func nameOfGroup(g *group) who {
	if g.queue == "" {
		return tenantNamed(g.tenant)
	}
	return queueNamed(g.queue)
}

func tenantNamed(tenant string) who {
	return who{"tenant " + tenant, "protectedLimit in quotas, or guaranteed without it"}
}

func queueNamed(queue string) who {
	return who{"queue " + queue, "protectedCapacity in queues, or guaranteedCapacity without it"}
}

// whyOf converts a verdict on a request for an amount of resource i into a Why, with amounts in devices.
func whyOf(c *Capacity, i int, of who, wants int64, v quota.Verdict) Why {
	devices := func(n int64) int64 {
		per := c.Devices[i].Unit.PerDevice
		return (max(0, n) + per - 1) / per
	}
	switch v.Reason {
	case "":
		return Why{}
	case quota.NeverFits:
		return Why{names.ProtectedNever, fmt.Sprintf(
			"jobs with preemptible: false of %s may hold %d devices (%s), and this one asks for %d: it can never start; make a new one, smaller or preemptible, or have the number raised",
			of.name, devices(v.Most), of.fields, devices(wants))}
	case quota.AtLimit:
		return Why{names.ProtectedAtLimit, fmt.Sprintf(
			"jobs with preemptible: false of %s may hold %d devices (%s) and hold %d: this job's %d wait until some of these end",
			of.name, devices(v.Most), of.fields, devices(v.Pinned), devices(wants))}
	case quota.OthersGuaranteed:
		if v.Free < 0 {
			return Why{names.ProtectedTakes, fmt.Sprintf(
				"the pool guarantees and has set aside %d devices more than it has: no job with preemptible: false is let in until nodes are back", devices(-v.Free))}
		}
		return Why{names.ProtectedTakes, fmt.Sprintf(
			"the job needs %d devices beyond what is guaranteed to %s, and %d are neither guaranteed to others nor set aside for their jobs: "+
				"it waits until jobs with preemptible: false end, or guarantees are lowered",
			devices(v.More), of.name, devices(v.Free))}
	case quota.NoShare:
	}
	return whyNoQueue(of.name)
}
