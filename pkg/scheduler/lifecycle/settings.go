// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// SettingsOf reads the arguments both plugins have; they are defaulted and valid.
func SettingsOf(a *config.CommonArgs) Settings {
	return Settings{
		Config: nodestate.Config{
			Namespace: a.Namespace, Weights: a.Weights(), RequestTimeout: a.RequestTimeout.Duration,
			LeaderLease: a.LeaderLease.Name, LeaderTerm: time.Duration(a.LeaderLease.DurationSeconds) * time.Second,
			Freshness: a.GraphFreshness.Duration,
		},
		Debug:     Debug{Address: a.DebugAddress, CertFile: a.DebugCertFile, KeyFile: a.DebugKeyFile},
		Resources: a.Resources, WriteInBind: a.AnnotationWrite == config.AnnotationWriteBinding,
		WriteAliases: a.WriteAliases == nil || *a.WriteAliases,
	}
}
