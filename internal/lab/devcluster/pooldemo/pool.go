// SPDX-License-Identifier: Apache-2.0

package pooldemo

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/manifests"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

const (
	group       = poolv1alpha1.GroupName + "/v1alpha1"
	pool        = "training"
	nodes       = 8
	gpusPerNode = 8
	reserved    = 8
	capacity    = nodes*gpusPerNode - reserved
	// unitPrice of a GPU hour makes a GPU second a cent.
	unitPrice = "36"
)

// tenant is one of the three tenants, with its letter in pictures.
type tenant struct {
	name                      string
	letter                    rune
	guaranteed, weight, limit int64
	// share is its number of GPUs when all have more work than room: its guarantee, and by weight a part of
	// the GPUs that are not guaranteed.
	share int64
}

func tenants() []tenant {
	all := []tenant{
		{name: "team-a", letter: 'A', guaranteed: 8, weight: 3, limit: 48},
		{name: "team-b", letter: 'B', guaranteed: 16, weight: 2, limit: 32},
		{name: "team-c", letter: 'C', guaranteed: 8, weight: 1, limit: 24},
	}
	rest, weights := int64(capacity), int64(0)
	for _, t := range all {
		rest -= t.guaranteed
		weights += t.weight
	}
	for i := range all {
		all[i].share = all[i].guaranteed + rest*all[i].weight/weights
	}
	return all
}

// Nodes returns the pool's nodes.
func Nodes() []devcluster.NodeSpec {
	var out []devcluster.NodeSpec
	for i := range nodes {
		out = append(out, devcluster.NodeSpec{
			Name: fmt.Sprintf("node-%d", i), Machine: "dgx-a100", Labels: map[string]string{poolv1alpha1.LabelPool: pool},
		})
	}
	return out
}

// GateImage is the image of the gates of RemoteGPUSessions. The nodes are simulated, so it is never
// pulled, and no server runs at a session's endpoint.
const GateImage = "nvtopo-pool-controller:dev"

// Start installs the objects that pools need on a cluster with Kueue, and starts the pool controller
// under its own account, with remote sessions.
func Start(ctx context.Context, c *devcluster.Cluster, controller string) error {
	if err := c.ApplyManifests(ctx, manifests.Pools); err != nil {
		return fmt.Errorf("install the manifests of pools: %w", err)
	}
	_, err := c.StartPoolController(ctx, devcluster.PoolControllerOptions{
		Binary: controller, ServiceAccount: release.Namespace + "/nvtopo-pool-controller", Args: []string{"--gate-image=" + GateImage},
	})
	return err
}

// objects returns the pool, its prices, and the tenants with their payments.
func objects() []client.Object {
	var quotas []any
	var out []client.Object
	for _, t := range tenants() {
		quotas = append(quotas, map[string]any{"tenant": t.name, "guaranteed": t.guaranteed, "limit": t.limit, "weight": t.weight})
		out = append(out,
			object("v1", "Namespace", "", t.name, map[string]any{poolv1alpha1.LabelTenant: t.name}, nil),
			object(group, "TenantAccount", "", t.name, nil, map[string]any{
				"credits": []any{map[string]any{"id": "payment-1", "amount": "100.00", "at": "2026-01-01T00:00:00Z"}},
			}),
		)
	}
	return append(out,
		object(group, "PriceBook", "", "default", nil, map[string]any{
			"currency": "USD", "minPeriodSeconds": int64(1), "prices": []any{map[string]any{"resource": gpu, "pricePerHour": unitPrice}},
		}),
		object(group, "ComputePool", "", pool, nil, map[string]any{
			"poolType": "gpu", "capacity": map[string]any{"total": int64(nodes * gpusPerNode), "reserved": int64(reserved)}, "quotas": quotas,
		}),
	)
}

// object returns an object of some kind.
func object(apiVersion, kind, namespace, name string, labels, spec map[string]any) client.Object {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	if labels != nil {
		metadata["labels"] = labels
	}
	out := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	if spec != nil {
		out["spec"] = spec
	}
	return &unstructured.Unstructured{Object: out}
}
