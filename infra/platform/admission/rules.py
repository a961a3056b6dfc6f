"""Admission rules for pods in team namespaces: a CEL expression and an error message for each.

In an expression, `pod` is a pod or a pod template; its `metadata` or its `spec` may be missing. `containers`
lists all its containers. `allowed.NAME` is a list from the stack file (`parameters.py`); `{NAME}` in a
message shows that list. `variables.is_controller` is whether a controller that the cluster trusts
makes the request.

Rules that a user reads as one are one, and start with a test that most pods pass: the API server evaluates
each rule, and each message that shows a team's list, for every pod.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import catalog
from infra.common import names

Of = Literal["any", "whole", "pod", "created-pod"]
"""Objects of a rule. `any`: pods, pod templates and a TrainJob's overrides of its runtime. `whole`: pods
and templates without those overrides. `pod`: pods only, since a template does not name the user who
creates its pods. `created-pod`: pods only, and only when they are created."""


@dataclass(frozen=True)
class AdmissionRule:
    """One rule: a condition, and the message for a pod that violates it."""

    name: str
    holds: str
    """CEL expression that must be true."""
    message: str
    """Error message: the faulty field first, then the next step."""
    of: Of = "any"
    only_with: str = ""
    """List of the stack without which there is no such rule; empty: there always is."""


_NO_DEVICES = (
    "containers.all(c, ['limits', 'requests'].all(part, c.?resources[?part].orValue({}).all(name,"
    " name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-'))))"
    " && size(pod.?spec.?resourceClaims.orValue([])) == 0"
)
_ANTI_AFFINITY = (
    "pod.?spec.?affinity.?podAntiAffinity.?requiredDuringSchedulingIgnoredDuringExecution.orValue([])"
)
_NODE_TERMS = (
    "pod.?spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution"
    ".?nodeSelectorTerms.orValue([])"
)
_POD_TERMS = " + ".join(
    f"pod.?spec.?affinity.?{kind}.?requiredDuringSchedulingIgnoredDuringExecution.orValue([])"
    for kind in ("podAffinity", "podAntiAffinity")
) + "".join(
    f" + pod.?spec.?affinity.?{kind}.?preferredDuringSchedulingIgnoredDuringExecution.orValue([])"
    ".map(each, each.podAffinityTerm)"
    for kind in ("podAffinity", "podAntiAffinity")
)
_CONTEXT = "c.?securityContext"
_HANDLERS = (
    "[c.?livenessProbe, c.?readinessProbe, c.?startupProbe, c.?lifecycle.?postStart, c.?lifecycle.?preStop]"
)
_HAS_NO_HANDLER = " && ".join(
    f"!has(c.{each})" for each in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
)
_NETWORK_ANNOTATIONS = (
    "cni.projectcalico.org/allowedSourcePrefixes",
    "cni.projectcalico.org/floatingIPs",
    "cni.projectcalico.org/hwAddr",
    "cni.projectcalico.org/ipAddrs",
    "cni.projectcalico.org/ipAddrsNoIpam",
    "cni.projectcalico.org/ipv4pools",
    "ipam.cilium.io/ip-pool",
    "k8s.v1.cni.cncf.io/networks",
    "networking.gke.io/default-interface",
    "networking.gke.io/interfaces",
    "v1.multus-cni.io/default-network",
)
"""Annotations of Calico, Cilium, GKE and Multus by which a pod gets further interfaces, another main one or
an address of its choice: NetworkPolicies know a pod by its main interface's address. What the plugins
report about a pod has other names."""
_INLINE_DRIVERS = ("gcsfuse.csi.storage.gke.io", "secrets-store.csi.k8s.io")
"""CSI drivers of inline volumes that mount only data readable by the pod's service account. Other drivers,
such as Azure Files, mount shares by name."""
_IS_DAEMON = "('image ' + c.?image.orValue('')) in allowed.daemons"
_AS_THE_STACK_HAS_IT = (
    "c.all(key, key in ['command', 'env', 'image', 'imagePullPolicy', 'name', 'resources', 'restartPolicy',"
    " 'securityContext', 'startupProbe', 'terminationMessagePath', 'terminationMessagePolicy',"
    " 'volumeMounts'])"
    " && ('name ' + c.name) in allowed.daemons"
    " && (!has(c.startupProbe) || ('probe ' + c.startupProbe.?exec.?command.orValue([]).join(' '))"
    " in allowed.daemons)"
    " && ('command ' + c.?command.orValue([]).join(' ')) in allowed.daemons"
    # The Job controller adds the index to every container of an indexed Job.
    " && c.?env.orValue([]).all(each, each.name == 'JOB_COMPLETION_INDEX' ||"
    " ('env ' + each.name + '=' + each.?value.orValue('')) in allowed.daemons)"
    " && c.?volumeMounts.orValue([]).all(mount, !has(mount.subPath) && !has(mount.subPathExpr) &&"
    " (mount.mountPath == '/var/run/secrets/kubernetes.io/serviceaccount' ||"
    " (('mount ' + mount.name + ' ' + mount.mountPath) in allowed.daemons &&"
    " pod.?spec.?volumes.orValue([]).all(volume, volume.name != mount.name ||"
    " volume.?persistentVolumeClaim.?claimName.orValue('') == mount.name))))"
)
"""CEL condition that a root daemon's container is exactly the stack's: a changed one would run a team's
program as root."""
_IS_READ_ONLY = f"(claim in allowed.read_only_claims || claim.startsWith('{names.TRAINING_ENV}-'))"
"""CEL condition on a claim; jobs may still have the claim of a former training environment."""
_WRITES_NO_PATH_OF_A_DAEMON = (
    "c.?volumeMounts.orValue([]).all(mount, pod.?spec.?volumes.orValue([]).all(volume,"
    " volume.name != mount.name || [volume.?persistentVolumeClaim.?claimName.orValue('')].all(claim,"
    " claim in allowed.read_only_claims || !allowed.daemons.exists(each,"
    " each.startsWith('mount ' + claim + ' ')))))"
)
"""CEL condition that a container mounts none of the node's paths that a daemon may write, such as /sys."""


VOLUME_KINDS = (
    *("name", "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"),
    *("persistentVolumeClaim", "projected", "secret"),
)
"""Keys of a volume that a pod may have."""
MAX_CONTAINERS = 16
"""Maximum number of containers of a pod; a node has 110 pods, whose containers the kubelet keeps listing."""
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"


def _or_of_pod(field: str, default: bool | int | str) -> str:
    """Return the CEL expression for: a container's field of `securityContext`, else the pod's, else this."""
    return f"{_CONTEXT}.?{field}.orValue(pod.?spec.?securityContext.?{field}.orValue({json.dumps(default)}))"


def holds_size(characters: int) -> str:
    """Return the CEL condition that an object, its managed fields included, has so many characters at most.

    An object near the limit of the API server's store (1.5 MiB) can be read and not changed: a queue can
    neither suspend nor preempt it.
    """
    return f"size('%s'.format([object])) <= {characters}"


NO_NEW_FINALIZERS = (
    "object.metadata.?finalizers.orValue([]).all(each, request.operation == 'UPDATE' && each in"
    " oldObject.metadata.?finalizers.orValue([]))"
)
"""CEL condition that a request adds no finalizer to its object."""
CLAIM_OF_NO_VOLUME = (
    "!claim.?spec.?volumeName.hasValue() && !claim.?spec.?selector.hasValue()"
    " && claim.?spec.?storageClassName.orValue('default') != ''"
    # The legacy annotation names a class, and drivers read others.
    " && size(claim.?metadata.?annotations.orValue({})) == 0"
)
"""CEL condition that a claim's template asks for no volume by name, by labels, or without a class. The
platform's own volumes name their claims; those that others have made by hand often do not."""

NODE: Sequence[AdmissionRule] = (
    AdmissionRule(
        "host-namespaces",
        " && ".join(f"!pod.?spec.?{each}.orValue(false)" for each in ("hostNetwork", "hostPID", "hostIPC")),
        "hostNetwork, hostPID, hostIPC: leave them out; pods of a job reach each other by the pods' network.",
    ),
    AdmissionRule(
        "security-context",
        f"(containers.map(c, {_CONTEXT}) + [pod.?spec.?securityContext]).all(each,"
        " !each.?privileged.orValue(false) && each.?procMount.orValue('Default') == 'Default'"
        " && each.?appArmorProfile.?type.orValue('RuntimeDefault') == 'RuntimeDefault'"
        " && (!each.?seLinuxOptions.hasValue() || (each.?seLinuxOptions.?type.orValue('') in ['',"
        " 'container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t']"
        " && each.?seLinuxOptions.?user.orValue('') == '' && each.?seLinuxOptions.?role.orValue('') == '')))"
        " && pod.?metadata.?annotations.orValue({}).all(key,"
        " !key.startsWith('container.apparmor.security.beta.kubernetes.io/')"
        " || pod.metadata.annotations[key] == 'runtime/default')",
        "securityContext: leave out privileged, procMount, appArmorProfile other than RuntimeDefault, and in"
        " seLinuxOptions user, role and types other than container_t; devices come by resources.limits, not"
        " by privilege.",
    ),
    AdmissionRule(
        "capabilities",
        f"containers.all(c, {_CONTEXT}.?capabilities.?add.orValue([]).all(each, {_IS_DAEMON} &&"
        " ('capability ' + each) in allowed.daemons))",
        "securityContext.capabilities.add: leave it out; a user's process gets none, and nodes let it lock"
        " memory without.",
    ),
    AdmissionRule(
        "daemon",
        f"size(allowed.daemons) == 0 || containers.all(c, {_IS_DAEMON} ? ({_AS_THE_STACK_HAS_IT}) :"
        f" !(('name ' + c.name) in allowed.daemons) && {_WRITES_NO_PATH_OF_A_DAEMON})",
        "the fabric's daemon runs as root: leave its container as the runtime has it (name, command, env,"
        " volumeMounts), add nothing to it, and give no other container its name or its paths of the node.",
        of="whole",
    ),
    AdmissionRule(
        "volumes",
        f"pod.?spec.?volumes.orValue([]).all(volume, volume.all(kind, kind in {[*VOLUME_KINDS]!r}))",
        "volumes: no paths of the node (hostPath) and no disks by name; use a claim, such as checkpoints.",
    ),
    AdmissionRule(
        "csi-volumes",
        "pod.?spec.?volumes.orValue([]).all(volume, volume.?csi.?driver.orValue('') in"
        f" {['', *_INLINE_DRIVERS]!r})",
        "volumes.csi: use a claim, such as checkpoints; a driver would mount another team's share for this"
        f" pod. Inline volumes are for {' and '.join(_INLINE_DRIVERS)}.",
    ),
    AdmissionRule(
        "claimed-volumes",
        "pod.?spec.?volumes.orValue([]).all(volume, !has(volume.ephemeral) ||"
        f" [volume.?ephemeral.?volumeClaimTemplate].all(claim, {CLAIM_OF_NO_VOLUME}))",
        "volumes.ephemeral: leave out volumeName, selector and annotations, and give no storageClassName or"
        " one with a name; else the claim could take a volume that was made for others.",
    ),
    AdmissionRule(
        "annotations",
        f"pod.?metadata.?annotations.orValue({{}}).all(key, !(key in {list(_NETWORK_ANNOTATIONS)!r}"
        " || key.matches('^((cdi|nvidia[.]cdi|cdi-devices|cgroups|devices|mounts|netdevices|ulimits)[.]"
        "|io[.]kubernetes[.]cri-o[.]|io[.]katacontainers[.]|org[.]systemd[.]property[.]|run[.]oci[.])'))"
        " || (key + '=' + pod.metadata.annotations[key]) in allowed.annotations)",
        "annotations of the node's runtime and plugins (cdi.…, devices.…, io.kubernetes.cri-o.…, run.oci.…)"
        " and of a pod's networks and addresses: leave them out, or copy them from this pool's runtime;"
        " devices come by resources.limits, and another interface would pass the network policy.",
    ),
    AdmissionRule(
        "host-ports",
        "containers.all(c, c.?ports.orValue([]).all(port, port.?hostPort.orValue(0) == 0))",
        "ports.hostPort: leave it out; `kubectl port-forward` reaches a pod's own port.",
    ),
    AdmissionRule(
        "probed-hosts",
        f"containers.all(c, ({_HAS_NO_HANDLER}) || {_HANDLERS}.all(handler,"
        " handler.?httpGet.?host.orValue('') == '' && handler.?tcpSocket.?host.orValue('') == ''))",
        "host of a probe or lifecycle hook: leave it out; the node would connect to it, past the network"
        " policy.",
    ),
    AdmissionRule(
        "sysctls",
        "size(pod.?spec.?securityContext.?sysctls.orValue([])) == 0",
        "securityContext.sysctls: leave them out; ask the platform to set them on the nodes.",
    ),
    AdmissionRule(
        "unprivileged-user",
        # One rule for all that Pod Security's `restricted` requires, since each rule has a fixed cost.
        f"containers.all(c, ({_or_of_pod('runAsNonRoot', False)} && {_or_of_pod('runAsUser', 1000)} != 0"
        f" || {_IS_DAEMON}) && {_CONTEXT}.?allowPrivilegeEscalation.orValue(true) == false"
        f" && 'ALL' in {_CONTEXT}.?capabilities.?drop.orValue([])"
        f" && {_or_of_pod('seccompProfile.?type', '')} in ['RuntimeDefault', 'Localhost'])",
        "securityContext: set runAsNonRoot: true, a runAsUser other than 0, allowPrivilegeEscalation: false,"
        " capabilities: {drop: [ALL]} and seccompProfile: {type: RuntimeDefault}.",
        of="whole",
    ),
    AdmissionRule(
        "containers",
        f"containers.size() <= {MAX_CONTAINERS}",
        f"containers of a pod: at most {MAX_CONTAINERS}, init containers included; with hundreds a node"
        " would fail, and with it the pods of other teams.",
    ),
    AdmissionRule(
        "node-name",
        "pod.?spec.?nodeName.orValue('') == '' || request.operation == 'UPDATE'",
        "nodeName: leave it out; the queue and the scheduler choose the node.",
    ),
)
"""Rules against access to the node: its namespaces, files, ports and interfaces, privileges, root, and the
choice of a node by name."""

IDENTITY: Sequence[AdmissionRule] = (
    AdmissionRule(
        "service-account",
        "pod.?spec.?serviceAccountName.orValue('default') in ['', 'default']"
        " && pod.?spec.?serviceAccount.orValue('default') in ['', 'default']",
        "serviceAccountName: leave it out; the team's own account is `default`.",
    ),
    AdmissionRule(
        "tokens",
        "pod.?spec.?volumes.orValue([]).all(volume, volume.?projected.?sources.orValue([]).all(source,"
        " !has(source.podCertificate) && (!has(source.serviceAccountToken)"
        # Kubernetes adds a volume with this name and no audience.
        " || (volume.name.startsWith('kube-api-access-') && !has(source.serviceAccountToken.audience))"
        " || source.serviceAccountToken.?audience.orValue('') in ['sts.amazonaws.com',"
        " 'pods.eks.amazonaws.com',"
        " 'api://AzureADTokenExchange'])))",
        "volumes.projected.serviceAccountToken, podCertificate: leave them out; the cloud's own webhook adds"
        " the token of a job.",
    ),
    AdmissionRule(
        "owners",
        "size(pod.?metadata.?ownerReferences.orValue([])) == 0 || variables.is_controller"
        " || (request.operation == 'UPDATE' && oldObject.?metadata.?ownerReferences =="
        " pod.?metadata.?ownerReferences)",
        "metadata.ownerReferences: leave them out; only controllers set the owner of a pod.",
        of="pod",
    ),
    AdmissionRule(
        "finalizers",
        # The Job controller removes its finalizer only from pods of Jobs.
        "pod.?metadata.?finalizers.orValue([]).all(each, each in ['foregroundDeletion', 'orphan']"
        " || each == 'batch.kubernetes.io/job-tracking' && (request.operation == 'UPDATE'"
        f" || request.userInfo.username == '{JOB_CONTROLLER}'))",
        "metadata.finalizers of a pod: leave them out; a pod that cannot be deleted keeps its accelerators.",
    ),
    AdmissionRule(
        "read-only-claims",
        "pod.?spec.?volumes.orValue([]).all(volume, [volume.?persistentVolumeClaim.?claimName.orValue('')]"
        f".all(claim, !{_IS_READ_ONLY}) || volume.?persistentVolumeClaim.?readOnly.orValue(false) ||"
        # The kubelet changes the group of every file of a writable volume to the pod's fsGroup.
        " (!pod.?spec.?securityContext.?fsGroup.hasValue() && containers.all(c,"
        " c.?volumeMounts.orValue([]).all(mount, mount.name != volume.name ||"
        " mount.?readOnly.orValue(false)))))"
        # The kubelet creates a missing subPath as root, even for a read-only mount (kubelet_pods.go).
        " && containers.all(c, c.?volumeMounts.orValue([]).all(mount, (!has(mount.subPath) &&"
        " !has(mount.subPathExpr)) || pod.?spec.?volumes.orValue([]).all(volume, mount.name != volume.name ||"
        " [volume.?persistentVolumeClaim.?claimName.orValue('')].all(claim,"
        f" !{_IS_READ_ONLY} && !claim.startsWith('host-')))))",
        "volumes: claims that teams share are read only here ({read_only_claims}): set readOnly: true in"
        " persistentVolumeClaim, and mount neither these nor paths of the node by subPath or subPathExpr.",
    ),
)
"""Rules for a pod's service account and tokens, owners and finalizers, and for claims that teams share."""

PLACEMENT: Sequence[AdmissionRule] = (
    AdmissionRule(
        "pools",
        "variables.is_placed || (pod.?spec.?tolerations.orValue([]).all(each, each.?key.orValue('') in"
        " allowed.taints) && [pod.?spec.?nodeSelector.orValue({})].all(labels,"
        " labels.all(key, key in allowed.node_labels)"
        " && labels[?'trainyard.dev/pool'].orValue('') in allowed.pools + ['']"
        " && labels[?'trainyard.dev/capacity'].orValue('') != 'system')"
        f" && {_NODE_TERMS}.all(term, size(term.?matchFields.orValue([])) == 0 &&"
        " term.?matchExpressions.orValue([]).all(each, each.key in allowed.node_labels && (each.key !="
        " 'trainyard.dev/pool' || (each.operator == 'In' && each.values.all(value, value in"
        " allowed.pools))))))",
        "tolerations, nodeSelector, nodeAffinity: leave them out, and the queue chooses among the pools of"
        " this team, {pools} (in nodeAffinity with operator In). Labels that a job may select by:"
        " {node_labels}. Taints that it may tolerate: {taints}.",
    ),
    AdmissionRule(
        "pod-affinity",
        f"!pod.?spec.?affinity.hasValue() || (({_POD_TERMS}).all(term, !has(term.namespaceSelector)"
        " && term.?namespaces.orValue([]).all(each, each == request.namespace))"
        f" && {_ANTI_AFFINITY}.all(term, term.topologyKey == 'kubernetes.io/hostname'))",
        "podAffinity, podAntiAffinity: leave out namespaces and namespaceSelector, and require"
        " podAntiAffinity only with topologyKey kubernetes.io/hostname; else they would close nodes to"
        " others.",
    ),
    AdmissionRule(
        "exclusive-topology",
        "!('alpha.jobset.sigs.k8s.io/exclusive-topology' in pod.?metadata.?annotations.orValue({}))",
        "annotation alpha.jobset.sigs.k8s.io/exclusive-topology: leave it out, it closes a domain to others;"
        " ask for pods close to each other with kueue.x-k8s.io/podset-preferred-topology.",
    ),
    AdmissionRule(
        "pod-priority",
        "pod.?spec.?priorityClassName.orValue('') == ''",
        "priorityClassName: leave it out; a job's priority is its label kueue.x-k8s.io/priority-class.",
    ),
    AdmissionRule(
        "grace",
        "pod.?spec.?terminationGracePeriodSeconds.orValue(0) <= int(allowed.grace_seconds[0])",
        "terminationGracePeriodSeconds: at most {grace_seconds}, as this stack's runtimes have"
        " (grace_seconds); a cancelled job's quota is free before its pods have ended.",
    ),
)
"""Rules for a pod's nodes, its priority and its grace period."""

DEVICES: Sequence[AdmissionRule] = (
    AdmissionRule(
        "devices-by-queue",
        f"variables.makes_queued_pods || ({_NO_DEVICES})",
        "accelerators and other devices: submit a job (TrainJob, JobSet, MPIJob, Job); a pod made by"
        " hand has none.",
        of="created-pod",
    ),
    AdmissionRule(
        "devices-with-accelerators",
        "containers.exists(c, allowed.accelerators.exists(each,"
        # A custom resource may have an integer here; without `dyn`, CEL's string() accepts only strings.
        " string(c.?resources.?limits[?each].orValue(dyn('0'))) != '0'))"
        " || containers.all(c, ['limits', 'requests'].all(part, c.?resources[?part].orValue({}).all(name,"
        " name in ['cpu', 'memory', 'ephemeral-storage'] || name in allowed.accelerators)))"
        " && size(pod.?spec.?resourceClaims.orValue([])) == 0",
        "resources: hugepages and devices of a fabric come with accelerators ({accelerators}); ask for these"
        " as well, since the queue counts nothing else, or leave them out.",
    ),
    AdmissionRule(
        "devices-of-a-pod",
        "!pod.?spec.?resources.hasValue() || ['limits', 'requests'].all(part,"
        " pod.?spec.?resources[?part].orValue({}).all(name, name in ['cpu', 'memory']))",
        "resources of a pod: only cpu and memory; ask for hugepages and accelerators in a container's"
        " resources.",
        of="whole",
    ),
    AdmissionRule(
        "devices-by-environment",
        f"containers.all(c, c.?env.orValue([]).all(each, !(each.name in {list(names.DEVICE_VARIABLES)!r}) ||"
        " each.?value.orValue('') in ['none', 'void', 'disabled'])"
        # A Secret's keys are not known here, so no prefix may be the beginning of such a variable.
        " && c.?envFrom.orValue([]).all(each, each.?prefix.orValue('') == '' ||"
        f" !{list(names.DEVICE_VARIABLES)!r}.exists(name, name.startsWith(each.prefix))))",
        f"env {', '.join(names.DEVICE_VARIABLES)}, prefixes of envFrom that begin them: leave them out; ask"
        " for accelerators in resources.limits.",
    ),
    AdmissionRule(
        "resource-claims",
        "pod.?spec.?resourceClaims.orValue([]).all(each, each.?resourceClaimTemplateName.orValue('') in"
        " allowed.claim_templates && size(pod.spec.resourceClaims.filter(other,"
        " other.?resourceClaimTemplateName == each.?resourceClaimTemplateName)) == 1)",
        "resourceClaims: use each template that the platform has made here ({claim_templates}) once.",
    ),
    AdmissionRule(
        "runtime-class",
        f"pod.?spec.?runtimeClassName.orValue('') == '' || !({_NO_DEVICES})",
        "runtimeClassName: leave it out of a pod without accelerators.",
        of="whole",
    ),
)
"""Rules for accelerators and other devices: only pods of queued jobs get them, and by resources alone."""

_IMAGES = (
    "(containers.map(c, c.?image.orValue('')) + pod.?spec.?volumes.orValue([]).map(volume,"
    " volume.?image.?reference.orValue('')))"
)
IMAGES: Sequence[AdmissionRule] = (
    AdmissionRule(
        "image-registries",
        f"{_IMAGES}.all(image, image == '' || image in allowed.stack_images"
        " || allowed.registries.exists(prefix, image.startsWith(prefix)))",
        "image: push it to one of the registries that this stack allows: {registries}.",
        only_with="registries",
    ),
    AdmissionRule(
        "image-digests",
        f"{_IMAGES}.all(image, image == '' || image in allowed.stack_images"
        " || image.matches('@sha256:[0-9a-f]{64}$'))",
        "image: name it by its digest, name@sha256:…; `docker buildx imagetools inspect NAME` shows it.",
        only_with="digests",
    ),
)
"""Rules for images of containers and of image volumes."""

PLACED_BY_QUEUE = AdmissionRule(
    "placed-by-queue",
    "!variables.makes_queued_pods"
    " || pod.?spec.?nodeSelector[?'trainyard.dev/pool'].orValue('') in allowed.pools",
    "nodeSelector: pods of a job run on the pool that its queue has chosen, one of the team's; the operators'"
    " nodes take none.",
    of="created-pod",
)
"""Rule for pods of jobs in clusters with queues. Pods that users create directly have no devices, and are
rare."""

_REGION_OF_HOST = f"host.find(r'{catalog.REGION}')"
_IS_PERMITTED = "allowed.regions.exists(region, {name}.matches('^(' + region + ')$'))"
RESIDENCY: Sequence[AdmissionRule] = (
    AdmissionRule(
        "regions",
        f"containers.all(c, c.?env.orValue([]).all(each, each.name in {list(catalog.REGION_VARIABLES)!r}"
        f" ? !has(each.value) || {_IS_PERMITTED.format(name='each.value.lowerAscii()')}"
        f" : !each.name.matches(r'{catalog.ENDPOINT_VARIABLE}')"
        f" || each.?value.orValue('').lowerAscii().findAll(r'{catalog.REGION_IN_HOST}').all(host,"
        f" {_IS_PERMITTED.format(name=_REGION_OF_HOST)})))",
        "env AWS_REGION, AWS_ENDPOINT_URL and the like: data of this stack may be in {regions}; name a region"
        " or an endpoint there, or leave it out.",
        only_with="regions",
    ),
)
"""Rules for data residency: no Pulumi resource shows where a job writes."""

POD_RULES: Sequence[AdmissionRule] = (*NODE, *IDENTITY, *PLACEMENT, *DEVICES, *IMAGES, *RESIDENCY)
