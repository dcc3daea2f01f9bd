// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// examplePools are the pools of manifests/examples/pools, by FILE/POOL.
func examplePools(t *testing.T) map[string]*v1alpha1.ComputePool {
	t.Helper()
	const folder = "examples/pools"
	entries, err := manifests.FS.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*v1alpha1.ComputePool{}
	for _, entry := range entries {
		text, err := manifests.FS.ReadFile(path.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
				t.Fatalf("%s: %v", entry.Name(), err)
			}
			if kind.Kind != v1alpha1.ComputePoolKind {
				continue
			}
			pool := &v1alpha1.ComputePool{}
			if err := yaml.UnmarshalStrict([]byte(document), pool); err != nil {
				t.Fatalf("%s: %v", entry.Name(), err)
			}
			out[strings.TrimSuffix(entry.Name(), ".yaml")+"/"+pool.Name] = pool
		}
	}
	return out
}

// promisedShares formats the shares of a layout: the guarantee and the limit.
func promisedShares(l *Layout) []string {
	var out []string
	line := func(tenant, queue string, p promise) {
		out = append(out, strings.Trim(tenant+"/"+queue, "/")+fmt.Sprintf(": %d, at most %d", p.guaranteed, p.limit))
	}
	for i := range l.groups {
		g := &l.groups[i]
		if g.cohort != "" {
			line(g.tenant, g.queue, g.promise)
		}
		for j := range g.queues {
			line(g.queues[j].tenant, g.queues[j].queue, g.queues[j].promise)
		}
	}
	return out
}

// TestExampleShares: the examples have the documented guarantees, also beside a tenant that
// they do not list.
func TestExampleShares(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"training-pool/training-pool": {"team-a: 16, at most 32", "team-b: 8, at most 24", "team-c: 0, at most 16"},
		"queues-pool/queues-pool":     {"high-priority: 32, at most 48", "normal: 16, at most 64", "preemptible: 0, at most 64"},
		"inference-pool/inference-pool": {
			"team-a: 4, at most 8", "team-b: 4, at most 8", "another: 0, at most 4",
		},
		"reference-small/gpus": {"team-a: 4, at most 16", "team-b: 4, at most 16"},
		"reference-medium/training": {
			"language: 24, at most 56", "vision: 16, at most 40", "robotics: 8, at most 32", "another: 0, at most 8",
		},
		"reference-medium/inference": {"serving: 24, at most 32", "language: 8, at most 16"},
		"reference-medium/notebooks": {"another: 0, at most 4"},
		"reference-large/training": {
			"research: 192, at most 384", "research/urgent: 32, at most 128", "research/normal: 0, at most 384", "research/spare: 0, at most 384",
			"products: 128, at most 256", "products/urgent: 32, at most 128", "products/normal: 0, at most 256", "products/spare: 0, at most 256",
			"platform: 32, at most 128", "platform/urgent: 32, at most 128", "platform/normal: 0, at most 128", "platform/spare: 0, at most 128",
			"another: 0, at most 16", "another/normal: 0, at most 16", "another/spare: 0, at most 16",
		},
		"reference-large/inference": {"serving: 64, at most 80", "products: 16, at most 32"},
		"reference-large/slices":    {"serving: 16, at most 32", "another: 0, at most 8"},
	}
	got := map[string][]string{}
	for name, pool := range examplePools(t) {
		l := NewLayout(pool, []string{"another"}, nil)
		got[name] = promisedShares(l)
		if c := guaranteesReduced(l); c.Status != metav1.ConditionFalse {
			t.Errorf("%s: %s", name, c.Message)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestExampleJobProtected: the example's job, which must not be preempted, is released by the
// example's pool.
func TestExampleJobProtected(t *testing.T) {
	t.Parallel()
	text, err := manifests.FS.ReadFile("examples/pools/llm-training.yaml")
	if err != nil {
		t.Fatal(err)
	}
	job := &v1alpha1.ElasticJob{}
	if err := yaml.UnmarshalStrict(text, job); err != nil {
		t.Fatal(err)
	}
	pool := examplePools(t)["training-pool/training-pool"]
	if pool == nil || job.Spec.Pool != pool.Name || job.Spec.Preemptible == nil || *job.Spec.Preemptible {
		t.Fatalf("job %+v in pool %+v: want one that must not be preempted", job.Spec, pool)
	}
	var nodes []*v1.Node
	for i := range 8 {
		nodes = append(nodes, testNode(fmt.Sprint("n", i), pool.Name, 8, nvidia))
	}
	request := Request{Job: "j", Queue: pool.Name + ".team-a", Devices: Amounts{nvidia: int64(job.Spec.Scaling.MinReplicas * job.Spec.Scaling.GPUPerReplica)}}
	if granted, _, _ := NewLayout(pool, nil, nil).Protect(capacityOf(pool, nodes...), nil, []Request{request}); len(granted) != 1 {
		t.Errorf("the pool does not let in %+v", request)
	}
}

// TestGuaranteesReduced: a guarantee of the inner list that does not hold is named, before
// there is any tenant.
func TestGuaranteesReduced(t *testing.T) {
	t.Parallel()
	queues := []v1alpha1.PoolQueue{{Name: "high", GuaranteedCapacity: 32}, {Name: "normal", GuaranteedCapacity: 16}, {Name: "low"}}
	for name, tc := range map[string]struct {
		change     func(*v1alpha1.ComputePoolSpec)
		wantReason string
		want       string // in the message
	}{
		"queues alone": {change: func(s *v1alpha1.ComputePoolSpec) { s.Quotas = nil }},
		"quotas alone": {change: func(s *v1alpha1.ComputePoolSpec) { s.Queues = nil }},
		"a default quota, which guarantees nothing": {
			change: func(s *v1alpha1.ComputePoolSpec) { s.Quotas, s.DefaultQuota = nil, &v1alpha1.DefaultQuota{} }, wantReason: "TenantsGuaranteeLess",
			want: "each tenant of defaultQuota in queue high has 0 of 32 devices, each tenant of defaultQuota in queue normal has 0 of 16 devices; raise quotas[].guaranteed, set hierarchy: QueueFirst",
		},
		"a queue for a tenant that is not listed": {
			change: func(s *v1alpha1.ComputePoolSpec) {
				s.Quotas, s.DefaultQuota, s.Queues = nil, &v1alpha1.DefaultQuota{}, []v1alpha1.PoolQueue{{Name: "high", GuaranteedCapacity: 4, Tenants: []string{"x"}}}
			}, wantReason: "TenantsGuaranteeLess", want: "tenant x in queue high has 0 of 4 devices",
		},
		"queues first keep theirs": {
			change: func(s *v1alpha1.ComputePoolSpec) {
				s.Quotas, s.DefaultQuota, s.Hierarchy = nil, &v1alpha1.DefaultQuota{}, v1alpha1.QueueFirst
			},
		},
		"tenants that guarantee less than their queues": {
			change: func(s *v1alpha1.ComputePoolSpec) { s.Quotas = s.Quotas[:1] }, wantReason: "TenantsGuaranteeLess",
			want: "tenant a in queue high has 10 of 32 devices, tenant a in queue normal has 5 of 16 devices",
		},
		"tenants that guarantee as much": {
			change: func(s *v1alpha1.ComputePoolSpec) { s.Quotas = []v1alpha1.TenantQuota{{Tenant: "a", Guaranteed: 48}} },
		},
		"queues that guarantee less than their tenants": {
			change:     func(s *v1alpha1.ComputePoolSpec) { s.Hierarchy = v1alpha1.QueueFirst },
			wantReason: "QueuesGuaranteeLess", want: "tenant a in queue normal has 10 of 16 devices, tenant b in queue normal has 5 of 8 devices, tenant a in queue low has 0 of 16 devices",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := examplePool()
			pool.Spec.Queues = queues
			tc.change(&pool.Spec)
			got := guaranteesReduced(NewLayout(pool, nil, nil))
			if wantTrue := tc.wantReason != ""; (got.Status == metav1.ConditionTrue) != wantTrue || wantTrue && got.Reason != tc.wantReason || !strings.Contains(got.Message, tc.want) {
				t.Errorf("got %s %s: %s; want reason %q, message with %q", got.Status, got.Reason, got.Message, tc.wantReason, tc.want)
			}
		})
	}
}
