//! A policy compiled for the programs of the kernel: the classes in their maps, and the leaves
//! where applications send.

use super::gate::lay_out;
use super::setup::Scheduler;
use narrows_bpf::tree::Image;
use narrows_xdp::{Enforcement, Numbers, compile};

/// The maps of the policy of `scheduler`, and the numbers of `classes`, in their order, as the data
/// plane compiles them for so many CPUs and limits that hold by `enforcement`.
pub(super) fn compiled(
    scheduler: &Scheduler,
    classes: &[u32],
    cpus: usize,
    enforcement: Enforcement,
) -> Result<(Image, Vec<u32>), String> {
    let (installation, _) = lay_out(scheduler, cpus.max(1))?;
    let plan = installation.plan();
    let compiled = compile(plan, &Numbers::default(), enforcement);
    let compiled = compiled.map_err(|refusal| refusal.to_string())?;
    let handle = plan.roots.first().and_then(|root| root.handle);
    let handle = handle.ok_or("the policy has no root")?;
    let leaf = |class: &u32| {
        let number = compiled.leaves.get(&(handle, *class)).copied();
        number.ok_or_else(|| format!("the policy has no leaf class 1:{class:x}"))
    };
    let leaves = classes.iter().map(leaf).collect::<Result<_, _>>()?;
    Ok((compiled.image, leaves))
}
