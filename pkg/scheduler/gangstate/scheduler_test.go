// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
)

// idle is a Scheduler that does nothing, knows all nodes and never leads by its Lease.
type idle struct{}

func (idle) MayLead() bool                          { return false }
func (idle) Synced() bool                           { return true }
func (idle) Fabric() *fabricview.View               { return nil }
func (idle) Keep(map[string][]*candidates.Kept)     {}
func (idle) Release([]types.UID)                    {}
func (idle) Reject([]types.UID, string)             {}
func (idle) Allow([]types.UID)                      {}
func (idle) Activate([]*v1.Pod)                     {}
func (idle) Commit(*Commit)                         {}
func (idle) Whole(*Commit)                          {}
func (idle) Settle(*Settlement)                     {}
func (idle) Say(gangrequest.Key, []*v1.Pod, string) {}
