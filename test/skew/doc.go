// SPDX-License-Identifier: Apache-2.0

// Package skew runs the programs of this release and of the one before it side by
// side, on a real control plane and on a real node: exporter, agent, scheduler and
// manifests one release apart in every way, upgrades and roll-backs with pods running.
//
// The programs of the other release are in the folder NVTOPO_SKEW_OLD, where
// `make skew OLD=REV` puts them. What must hold after every step: no GPU has two
// owners, no running pod was touched, new pods get GPUs, and nobody writes the same
// object for ever.
package skew
