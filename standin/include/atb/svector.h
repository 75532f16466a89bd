/* A vector with room for 64 elements inside, laid out as ATB's: capacity, size, 65 elements, memory for more. */
#ifndef STANDIN_ATB_SVECTOR_H
#define STANDIN_ATB_SVECTOR_H

#include <cstddef>
#include <initializer_list>
#include <stdexcept>

namespace atb {
constexpr std::size_t MAX_SVECTOR_SIZE = 256;
constexpr std::size_t DEFAULT_SVECTOR_SIZE = 64;

template <class T> class SVector {
public:
    SVector() = default;
    SVector(std::initializer_list<T> list)
    {
        for (const T &value : list) {
            push_back(value);
        }
    }
    SVector(const SVector &other) { *this = other; }
    ~SVector() { delete[] heap_; }

    SVector &operator=(const SVector &other)
    {
        if (this != &other) {
            clear();
            for (const T &value : other) {
                push_back(value);
            }
        }
        return *this;
    }

    void push_back(const T &value)
    {
        resize(size_ + 1);
        data()[size_ - 1] = value;
    }
    void resize(std::size_t size)
    {
        if (size > MAX_SVECTOR_SIZE) {
            throw std::length_error("SVector");
        }
        if (size > DEFAULT_SVECTOR_SIZE && heap_ == nullptr) {
            heap_ = new T[MAX_SVECTOR_SIZE]();
            capacity_ = MAX_SVECTOR_SIZE;
            for (std::size_t index = 0; index < size_; ++index) {
                heap_[index] = storage_[index];
            }
        }
        size_ = size;
    }
    void clear() { size_ = 0; }
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T *data() { return heap_ != nullptr ? heap_ : storage_; }
    const T *data() const { return heap_ != nullptr ? heap_ : storage_; }
    T *begin() { return data(); }
    T *end() { return data() + size_; }
    const T *begin() const { return data(); }
    const T *end() const { return data() + size_; }
    T &at(std::size_t index) { return data()[checked(index)]; }
    const T &at(std::size_t index) const { return data()[checked(index)]; }
    T &operator[](std::size_t index) { return at(index); }
    const T &operator[](std::size_t index) const { return at(index); }

private:
    std::size_t checked(std::size_t index) const
    {
        if (index >= size_) {
            throw std::out_of_range("SVector");
        }
        return index;
    }

    std::size_t capacity_ = 0;
    std::size_t size_ = 0;
    T storage_[DEFAULT_SVECTOR_SIZE + 1] = {};
    T *heap_ = nullptr;
};
} // namespace atb

#endif
