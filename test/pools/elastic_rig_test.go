// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"testing"
)

// onePool is a pool of whole nodes in which tenant a may have all.
func (s *scenario) onePool(t *testing.T, gpus int) {
	t.Helper()
	s.yaml(t, fmt.Sprintf(handQueues, gpus))
	s.computePool(t, fmt.Sprintf(`
  poolType: gpu
  capacity: {total: %d}
  quotas: [{tenant: POOL-a}]`, gpus))
}

const handQueues = `apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: POOL}
spec: {nodeLabels: {pool.nvtopo.dev/pool: POOL}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: POOL}
spec:
  namespaceSelector: {matchLabels: {pool.nvtopo.dev/tenant: POOL-a}}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: POOL, resources: [{name: nvidia.com/gpu, nominalQuota: %d}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: POOL, namespace: POOL-a}
spec: {clusterQueue: POOL}
`
