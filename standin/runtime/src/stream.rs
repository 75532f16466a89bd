//! Streams: queues of tasks with a worker thread each, started when the first task arrives.
//!
//! Tasks are numbered as on a card, which tells through the driver when it starts and finishes each; the numbers are
//! reported to profilers that asked for them.

use crate::capture::{Captured, Graph};
use crate::driver::standinTaskRecord;
use crate::error::RuntimeError;
use crate::event::Event;
use crate::kernel::Kernel;
use crate::state::{lock, state};
use crate::task_reports::{self, TaskIdentity, has_expanded_ids};
use standin_truth::Kind;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Work of a stream. What is captured may be done again and again.
pub type Work = Arc<dyn Fn() + Send + Sync>;

/// Which unit of the card does a task, by the numbers of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskType(pub u32);

/// What a task is.
#[derive(Clone, Copy)]
pub enum Task {
    /// A kernel.
    Kernel(&'static Kernel),
    /// A copy or fill.
    Copy,
    /// An event is recorded.
    Record,
    /// An event is waited for.
    Wait,
    /// Work of our own that no card would have.
    Unseen,
}

impl Task {
    /// Its type in reports.
    fn task_type(self) -> TaskType {
        match self {
            Self::Kernel(kernel) => kernel.task_type,
            Self::Copy => TaskType(5),
            Self::Record => TaskType(2),
            Self::Wait | Self::Unseen => TaskType(3),
        }
    }

    /// Its kind of entry in the submission queue.
    fn queue_entry_type(self) -> u32 {
        match self {
            Self::Kernel(_) | Self::Unseen => 0,
            Self::Copy => 11,
            Self::Record => 3,
            Self::Wait => 4,
        }
    }
}

/// Announces that the ids of a stream's tasks begin again.
const TASK_TYPE_FLIP: TaskType = TaskType(98);
const TASK_STARTS: u32 = 0;
const TASK_ENDS: u32 = 1;
const MOST_DEVICES: usize = 64;

/// The queue of a stream.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Captured>,
    /// Where tasks go while the stream is captured.
    graph: Option<Arc<Graph>>,
    next_task: u32,
    latest_kernel: Option<(u32, &'static Kernel)>,
    submitted: u64,
    finished: u64,
    has_worker: bool,
    closed: bool,
}

/// A stream.
pub struct Stream {
    /// Small number that names the stream.
    pub id: i32,
    /// Logical device of the stream.
    pub device: i32,
    physical_device: u32,
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Stream {
    /// A stream of `device` without work.
    pub fn new(device: i32) -> Self {
        static NEXT_IDS: [AtomicI32; MOST_DEVICES] = [const { AtomicI32::new(0) }; MOST_DEVICES];
        let physical_device = state().physical_device(device).unwrap_or_default();
        let id = NEXT_IDS[physical_device as usize % MOST_DEVICES].fetch_add(1, Ordering::Relaxed);
        Self { id, device, physical_device, queue: Mutex::new(Queue::default()), changed: Condvar::new() }
    }

    /// The stream behind a handle; null is the default stream of the thread's device.
    pub fn find(handle: u64) -> Result<Arc<Self>, RuntimeError> {
        if handle == 0 {
            let device = state().current_device()?;
            let mut defaults = lock(&state().default_streams);
            let stream = defaults.entry(device).or_insert_with(|| Arc::new(Self::new(device)));
            return Ok(Arc::clone(stream));
        }
        let streams = state().streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.get(&handle).cloned().ok_or(RuntimeError::InvalidStream)
    }

    /// Adds a task; with `ASCEND_LAUNCH_BLOCKING=1` also waits for it.
    pub fn submit(self: &Arc<Self>, task: Task, work: Work) -> Result<(), RuntimeError> {
        let mut queue = lock(&self.queue);
        let cannot_be_captured = queue.graph.is_some() && matches!(task, Task::Unseen);
        if queue.closed || cannot_be_captured {
            return Err(RuntimeError::InvalidStream);
        }
        let number = self.number_of(task, &mut queue);
        if let Task::Kernel(kernel) = task {
            queue.latest_kernel = Some((number, kernel));
            let ticks = state().card_clock(self.physical_device);
            state().log_kernel(Kind::KernelLaunch, self.identity(number), kernel, ticks, None, 0);
        }
        if let Some(graph) = &queue.graph {
            graph.add(Captured { task, number, work });
            drop(queue);
            self.report(task, number);
            self.report_again(task, number);
            return Ok(());
        }
        queue.waiting.push_back(Captured { task, number, work });
        queue.submitted += 1;
        if !queue.has_worker {
            queue.has_worker = true;
            let stream = Arc::clone(self);
            start_worker(move || stream.run());
        }
        self.changed.notify_all();
        drop(queue);
        self.report(task, number);
        if state().blocking { self.synchronize(None) } else { Ok(()) }
    }

    /// Numbers a task: within its stream, or within its card where that counts them together.
    fn number_of(&self, task: Task, queue: &mut Queue) -> u32 {
        static NEXT_OF_DEVICE: [AtomicU32; MOST_DEVICES] = [const { AtomicU32::new(0) }; MOST_DEVICES];
        if matches!(task, Task::Unseen) {
            return 0;
        }
        if state().counts_tasks_by_card {
            return NEXT_OF_DEVICE[self.physical_device as usize % MOST_DEVICES].fetch_add(1, Ordering::Relaxed);
        }
        let number = queue.next_task;
        queue.next_task = number.wrapping_add(1);
        number
    }

    fn identity(&self, task: u32) -> TaskIdentity {
        TaskIdentity { device: self.physical_device, stream: self.id.cast_unsigned(), task }
    }

    /// Tells profilers about a task that is in the queue.
    fn report(&self, task: Task, number: u32) {
        if matches!(task, Task::Unseen) || !task_reports::are_wanted(self.physical_device) {
            return;
        }
        if number & 0xffff == 0 && number != 0 {
            task_reports::report(self.identity(number), TASK_TYPE_FLIP, 0);
        }
        let hash = if let Task::Kernel(kernel) = task { kernel.hash() } else { 0 };
        task_reports::report(self.identity(number), task.task_type(), hash);
    }

    /// Tells profilers once more about a kernel, in the newer form.
    fn report_again(&self, task: Task, number: u32) {
        if let (Task::Kernel(kernel), true) = (task, task_reports::are_wanted(self.physical_device)) {
            task_reports::report_again(self.identity(number), kernel.task_type, kernel.hash());
        }
    }

    /// Keeps what is submitted from now on.
    pub fn begin_capture(self: &Arc<Self>) -> Result<(), RuntimeError> {
        let mut queue = lock(&self.queue);
        if queue.closed || queue.graph.is_some() {
            return Err(RuntimeError::InvalidStream);
        }
        queue.graph = Some(Graph::new(Arc::clone(self)));
        Ok(())
    }

    /// Gives back what was kept.
    pub fn end_capture(&self) -> Result<Arc<Graph>, RuntimeError> {
        lock(&self.queue).graph.take().ok_or(RuntimeError::InvalidStream)
    }

    /// Where tasks go while the stream is captured.
    pub fn graph(&self) -> Option<Arc<Graph>> {
        lock(&self.queue).graph.clone()
    }

    /// Waits until everything submitted so far is done.
    pub fn synchronize(&self, timeout_ms: Option<u64>) -> Result<(), RuntimeError> {
        let deadline = timeout_ms.map(|milliseconds| Instant::now() + Duration::from_millis(milliseconds));
        let mut queue = lock(&self.queue);
        let target = queue.submitted;
        while queue.finished < target {
            queue = match deadline {
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(RuntimeError::Timeout);
                    }
                    self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Ok(())
    }

    /// Whether everything submitted so far is done.
    pub fn is_idle(&self) -> bool {
        let queue = lock(&self.queue);
        queue.finished == queue.submitted
    }

    /// Lets the worker end once the queue is empty; no more work is taken.
    pub fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        let latest_kernel = queue.latest_kernel;
        drop(queue);
        self.changed.notify_all();
        if let Some((number, kernel)) = latest_kernel {
            self.report_again(Task::Kernel(kernel), number);
        }
    }

    /// Queues a recording of `event`.
    pub fn record(self: &Arc<Self>, event: Arc<Event>) -> Result<(), RuntimeError> {
        let number = event.begin_recording();
        self.submit(Task::Record, Arc::new(move || event.complete(number)))
    }

    /// Makes later work wait for the latest recording of `event`, or its first one.
    pub fn wait_for(self: &Arc<Self>, event: Arc<Event>) -> Result<(), RuntimeError> {
        let number = event.awaited_recording();
        self.submit(Task::Wait, Arc::new(move || event.wait(number)))
    }

    /// The card starts or finishes a task.
    fn note(&self, task: Task, number: u32, function: u32) {
        if matches!(task, Task::Unseen) {
            return;
        }
        let (mut ticks, mut host_ns) = (0, 0);
        let TaskIdentity { device, stream, task: number } = self.identity(number);
        let (entry_type, expanded) = (task.queue_entry_type(), u32::from(has_expanded_ids()));
        // SAFETY: both results outlive the call.
        let fate = unsafe {
            standinTaskRecord(device, function, entry_type, stream, number, expanded, &raw mut ticks, &raw mut host_ns)
        };
        if let Task::Kernel(kernel) = task {
            let kind = if function == TASK_STARTS { Kind::KernelStart } else { Kind::KernelEnd };
            state().log_kernel(kind, self.identity(number), kernel, ticks, Some(host_ns), fate);
        }
    }

    /// Does a task on this thread, under the names of this stream.
    pub fn run_task(&self, Captured { task, number, work }: &Captured) {
        self.note(*task, *number, TASK_STARTS);
        // A panic in an operator must not take the job down silently: the message is printed by the panic itself and the
        // stream goes on.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work()));
        self.note(*task, *number, TASK_ENDS);
    }

    fn run(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(next) = queue.waiting.pop_front() {
                drop(queue);
                self.run_task(&next);
                // What the work holds goes before anybody hears that it is done.
                drop(next);
                queue = lock(&self.queue);
                queue.finished += 1;
                self.changed.notify_all();
            } else if queue.closed {
                return;
            } else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Starts a thread that receives none of the job's signals.
fn start_worker(body: impl FnOnce() + Send + 'static) {
    // SAFETY: blocks all signals around the start, so the new thread inherits the full mask, then restores it.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let started = std::thread::Builder::new().name("standin-stream".to_owned()).spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        if started.is_err() {
            eprintln!("stand-in device: no thread for a stream");
            std::process::abort();
        }
    }
}

/// Waits for all streams of a logical device.
pub fn synchronize_device(device: i32, timeout_ms: Option<u64>) -> Result<(), RuntimeError> {
    let mut streams: Vec<_> = {
        let all = state().streams.read().unwrap_or_else(PoisonError::into_inner);
        all.values().filter(|stream| stream.device == device).cloned().collect()
    };
    streams.extend(lock(&state().default_streams).get(&device).cloned());
    streams.iter().try_for_each(|stream| stream.synchronize(timeout_ms))
}
