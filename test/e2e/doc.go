// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the node agent on a real node: etcd, API server, our scheduler, unmodified kubelet,
// containerd and runc. Only the GPUs are simulated, and in most tests also the inner device plugin;
// TestNVIDIAPlugin uses NVIDIA's own and our exporter, on a fake driver library. TestRealGPUs uses a
// machine's own GPUs, if NVTOPO_E2E_DRIVER names its libnvidia-ml.so.1.
//
// Its tests need Linux, root and the programs of `make node-programs`; SKIP_NODE=1 leaves them out.
// NVTOPO_E2E_PODS and NVTOPO_E2E_SEED change the long ones, NVTOPO_E2E_LOGS names a folder that keeps
// every program's log.
package e2e
